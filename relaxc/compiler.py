"""`relaxc.compile`: any supported source in, a `CompiledModel` out.

source -> frontend -> relax_passes.pipeline -> relax_passes.build -> CompiledModel
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from frontends.imported_model import ImportedModel
from frontends.size_bounds import promised_ranges
from relax_passes.pass_options import OptionError
from relaxc.buckets import Buckets, entry_name, fix_sizes, name_buckets, split_buckets
from relaxc.compatibility import installed_tvm_version, isa_features
from relaxc.compiled_model import CompiledModel
from relaxc.errors import CompileError, InvalidInput, InvalidModel, RelaxcError
from relaxc.free_memory import return_free_memory
from relaxc.held_states import state_pairs
from relaxc.metadata import Metadata
from relaxc.module_source import from_ir_module
from relaxc.options import (
    check_options,
    is_onnx,
    is_torch,
    prepare_dump_dir,
    with_plain_sizes,
)
from relaxc.preparation import Preparation
from relaxc.progress import Progress, phase_progress
from relaxc.report import Report
from relaxc.stored_weights import WeightTable
from relaxc.targets import resolve_target, target_dict
from relaxc.thread_pool import available_cores
from relaxc.tuning import tuning_session

if TYPE_CHECKING:
    from relax_passes.pass_base import PassContext
    from relax_passes.pipeline import Pipeline
    from relax_passes.tuning import TuningSession


def compile(  # the name is the public API's
    source: Any,
    example_inputs: Any = None,
    *,
    target: str | Mapping[str, Any] | Target = "llvm",
    precision: str = "float32",
    dynamic_shapes: Any = None,
    keep_params: bool = False,
    states: Mapping[str, str] | None = None,
    threads: int | None = None,
    debug: bool = False,
    passes: Pipeline | None = None,
    dump_dir: str | Path | None = None,
    progress: bool | Progress | None = None,
    tune: str | None = None,
) -> CompiledModel:
    """Compile a model.

    Args:
        source: Path of an ONNX file, an `onnx.ModelProto`, a `torch.nn.Module`, a
            `torch.export.ExportedProgram`, or a `tvm.IRModule` with a function `main`.
        example_inputs: Arguments to trace a `torch.nn.Module` with: a tuple, or a dict by name.
        target: "llvm" (this machine), "cuda", or any TVM target or target dict; the device need
            not be present.
        precision: "float32" may regroup floating-point operations; "strict" applies only those
            rules that keep every bit, NaN, infinities and signed zeros included (a kernel still
            adds up a sum in its own order); "tf32" is "float32" whose products on CUDA (sm_80 and
            newer) round their operands to 11 bits, for Tensor Cores: a sum of products is off by
            at most 2^-10 of the sum of their absolute values. Other targets round nothing.
        dynamic_shapes: Which dimensions are symbolic, fixed or have buckets. For an ONNX file
            `{"x": {0: "batch", 2: 224, 3: [16, 64]}}`: a name makes a dimension symbolic
            (`"batch<=32"` promises an upper bound, so that its memory is planned), a number fixes
            it, a list compiles a version for each of its sizes next to the symbolic one
            (`relaxc.buckets`). For a `torch.nn.Module` it is what `torch.export` takes.
        keep_params: Have the parameters and buffers of a `torch.nn.Module` be inputs instead of
            constants: after the module's own inputs, parameters first, in the order and by the
            names that the module has. `CompiledModel.bind_parameters` gives them once for all
            calls.
        states: Inputs that the model itself holds between calls, such as a decoder's cache, each
            with the output that is its next value: `{"past_key": "present_key"}`. They are neither
            given to a call nor returned, start as zeros, and are overwritten in place where the
            kernel allows. See `CompiledModel.states`.
        threads: Threads to schedule for and to run with; all available cores by default.
        debug: Verify more and trade speed for it.
        passes: The pipeline; `relax_passes.pipeline.default_pipeline()` by default.
        dump_dir: Folder that receives the module after each phase as re-parsable TVMScript, and
            the instructions of the virtual machine in `10_build.txt`.
        progress: True, False, or a function `(phase, index, total)`; by default a bar on stderr
            when that is a terminal.
        tune: "quick" measures a few schedules of each hot kernel on this machine, for at most
            `relax_passes.tuning.session.QUICK_SECONDS` in all, and takes another than the cost
            model's where it is faster beyond doubt. What was measured is kept on disk
            (`relaxc.tuning`).

    Raises:
        InvalidInput: If an option does not fit.
        InvalidModel: If the source is missing, unreadable or malformed.
        UnsupportedOperator: If it uses operators that relaxc does not know.
        CompileError: If a phase fails; the cause is chained.
    """
    check_options(source, precision, dynamic_shapes, threads, passes, keep_params, tune)
    if is_onnx(source):
        dynamic_shapes = with_plain_sizes(dynamic_shapes)
    lists = split_buckets(dynamic_shapes) if is_onnx(source) else {}
    count = threads or available_cores()
    resolved = resolve_target(target, count)
    tuning = tuning_session(tune, resolved, count)
    dump_path = prepare_dump_dir(dump_dir)
    clock = _PhaseClock()
    with phase_progress(progress) as show:
        with clock.phase("import"):
            imported = import_source(source, example_inputs, dynamic_shapes, keep_params)
            other = "buckets" if lists else "keep_params" if keep_params else ""
            held = state_pairs(imported, states, other)
            buckets, names = name_buckets(imported, lists)
            versions = {
                entry_name(sizes): import_source(
                    source,
                    dynamic_shapes=fix_sizes(
                        dynamic_shapes, lists, {key: sizes[name] for key, name in names.items()}
                    ),
                )
                for sizes in buckets.versions()
            }
        job = _Job(resolved, count, precision, debug, passes, dump_path, show, clock, tuning, held)
        model = job.compile(imported, buckets, versions)
    del imported, versions  # of what was imported the model has some weights, packed anew
    return_free_memory()
    return model


def compile_imported(
    imported: ImportedModel,
    *,
    target: str | Mapping[str, Any] | Target = "llvm",
    precision: str = "float32",
    threads: int | None = None,
    debug: bool = False,
    passes: Pipeline | None = None,
    dump_dir: str | Path | None = None,
) -> CompiledModel:
    """Compile a graph that a frontend has imported; the options are those of `compile`.

    Raises:
        InvalidInput: If an option does not fit.
        CompileError: If a phase fails; the cause is chained.
    """
    check_options(imported.module, precision, None, threads, passes)
    count = threads or available_cores()
    dump_path = prepare_dump_dir(dump_dir)
    with phase_progress(False) as show:
        resolved = resolve_target(target, count)
        job = _Job(resolved, count, precision, debug, passes, dump_path, show, _PhaseClock())
        return job.compile(imported, Buckets(), {})


def import_source(
    source: Any,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    keep_params: bool = False,
) -> ImportedModel:
    """Turn any supported source into a Relax graph.

    Raises:
        InvalidInput: If the source is of no supported kind, or `dynamic_shapes` does not fit an
            ONNX model's inputs.
        InvalidModel: If the source is missing, unreadable or malformed.
        UnsupportedOperator: If it uses operators that relaxc does not know.
    """
    if isinstance(source, tvm.IRModule):
        return from_ir_module(source)
    home = type(source).__module__.split(".")[0]
    is_path = isinstance(source, str | os.PathLike)
    if is_path and not _is_file(source):
        what = "is a folder" if str(source) and Path(source).is_dir() else "no such file"
        raise InvalidModel(f"cannot read the model: {what}", file=str(source))
    if is_path or (home == "onnx" and type(source).__name__ == "ModelProto"):
        from frontends.onnx import import_onnx

        return import_onnx(source, dynamic_shapes=dynamic_shapes)
    if is_torch(source):
        from frontends.torch import import_torch

        return import_torch(
            source, example_inputs, dynamic_shapes=dynamic_shapes, keep_params=keep_params
        )
    raise InvalidInput(
        "expected a path, an onnx.ModelProto, a torch.nn.Module, an ExportedProgram or a "
        f"tvm.IRModule, got {type(source).__name__}"
    )


@dataclass
class _Job:
    """One compilation: everything but the model."""

    target: Target
    threads: int
    precision: str
    debug: bool
    passes: Pipeline | None
    dump_dir: Path | None
    show: Progress
    clock: _PhaseClock
    tuning: TuningSession | None = None
    states: tuple[tuple[int, int], ...] = ()

    def compile(
        self, imported: ImportedModel, buckets: Buckets, versions: Mapping[str, ImportedModel]
    ) -> CompiledModel:
        """Carry the model, and its version for each bucket, through the pipeline; build them."""
        import relaxc
        from relax_passes.build import build_executable
        from relax_passes.dump_module import dump_instructions
        from relax_passes.lift_weights import LiftedWeights
        from relax_passes.merge_modules import merge_modules

        ctx = self._context()
        for subject, note in imported.notes:
            ctx.log.decline("import", subject, note)
        with self.clock.guard():
            module = self._run(imported, ctx, self.dump_dir)
            if versions:
                self.clock.start("buckets")
                buckets = self._prove_padding(imported, buckets, ctx)
                compiled = {
                    entry: self._run(
                        version, self._context(), self.dump_dir and self.dump_dir / entry
                    )
                    for entry, version in versions.items()
                }
                module = merge_modules(module, compiled)
            self.clock.start("build")
            count = len(self._pipeline().phases) + 1
            self.show("build", count, count)
            # A device gets copies in any case: those that the executable makes.
            lifted = LiftedWeights() if ctx.machine.kind == "llvm" else None
            executable = build_executable(module, ctx, lifted)
            if self.dump_dir is not None:
                dump_instructions(executable, self.dump_dir / f"{count:02d}_build.txt")
        self.clock.stop()
        weights = [constant.value for constant in lifted.constants] if lifted else []
        report = Report.from_log(ctx.log, self.clock.seconds, imported.source)
        metadata = Metadata(
            inputs=imported.inputs,
            outputs=imported.outputs,
            target=target_dict(self.target),
            cpu_features=isa_features(self.target),
            threads=self.threads,
            tvm_version=installed_tvm_version(),
            relaxc_version=relaxc.__version__,
            report=report,
            buckets=buckets,
            ranges=promised_ranges(imported.module),
            preparation=Preparation.of(module),
            states=self.states,
            weights=WeightTable.of(weights, lifted.takes if lifted else {}),
        )
        return CompiledModel(executable, metadata, weights=weights)

    def _context(self) -> PassContext:
        from relax_passes.pass_base import PassContext
        from tir_schedules.machine import Machine

        machine = replace(Machine.from_target(self.target), rounds_to_tf32=self.precision == "tf32")
        return PassContext(
            *(self.target, machine, self.threads, self.precision, self.debug),
            tuning=self.tuning,
            states=self.states,
        )

    def _run(
        self, imported: ImportedModel, ctx: PassContext, dump_dir: Path | None
    ) -> tvm.IRModule:
        def on_phase(name: str, index: int, total: int) -> None:
            self.clock.start(name)
            self.show(name, index, total + 1)

        return self._pipeline().run(
            *(imported.module, ctx),
            dump_dir=dump_dir,
            on_phase=on_phase,
            on_pass=self.clock.enter_pass,
        )

    def _pipeline(self) -> Pipeline:
        from relax_passes.pipeline import default_pipeline

        return self.passes if self.passes is not None else default_pipeline()

    def _prove_padding(
        self, imported: ImportedModel, buckets: Buckets, ctx: PassContext
    ) -> Buckets:
        """Find out along which dimensions a call may be padded to its bucket."""
        from relax_passes.analysis.independent_axis import padding_obstacle

        padded = []
        for name, sizes in buckets.sizes.items():
            obstacle = padding_obstacle(imported.module, name, ctx)
            shown = ", ".join(map(str, sizes))
            if obstacle is None:
                padded.append(name)
                ctx.log.fire("buckets", f"{name}: {shown}, other sizes are padded")
            else:
                ctx.log.fire("buckets", f"{name}: {shown}, other sizes run the symbolic version")
                ctx.log.decline("buckets", f"padding {name}", obstacle)
        return replace(buckets, padded=tuple(padded))


class _PhaseClock:
    """Times phases, and names the phase and the pass in which a fault happened."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since, self._pass = "", 0.0, ""

    def start(self, name: str) -> None:
        self.stop()
        self._name, self._since, self._pass = name, time.perf_counter(), ""

    def enter_pass(self, name: str) -> None:
        self._pass = name

    def stop(self) -> None:
        if self._name:
            elapsed = time.perf_counter() - self._since
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + elapsed
            self._name = ""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.start(name)
        with self.guard():
            yield
        self.stop()

    @contextmanager
    def guard(self) -> Iterator[None]:
        try:
            yield
        except RelaxcError:
            raise
        except OptionError as fault:  # a name that only the pass knows, as that of a rule
            raise InvalidInput(str(fault)) from fault
        except Exception as fault:  # whatever a pass or TVM raises is one kind of error to users
            raise _compile_error(self._name or "setup", self._pass, fault) from fault


@contextmanager
def running_phase(name: str) -> Iterator[None]:
    """Turn any fault inside the block that is not a `RelaxcError` into one that names `name`.

    Raises:
        CompileError: With the fault chained.
    """
    with _PhaseClock().phase(name):
        yield


def _compile_error(phase: str, pass_name: str, fault: Exception) -> CompileError:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    reason = f"{type(fault).__name__}: {lines[-1]}" if lines else repr(fault)
    where = f" in pass {pass_name!r}" if pass_name else ""
    return CompileError(f"phase {phase!r} failed{where}: {reason}")


def _is_file(path: Any) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
