"""What each subcommand of `relaxc` does; `relaxc.cli` parses the arguments."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxc.errors import InvalidInput

if TYPE_CHECKING:
    from relax_passes.pipeline import Pipeline
    from relaxc.compiled_model import CompiledModel
    from relaxc.report import Report


def run_compile(args: argparse.Namespace) -> int:
    """Compile a model and write it."""
    source = Path(args.model)
    # "" and "." have no name to derive one from; compiling says what is wrong with them.
    output = Path(args.output or (source.with_suffix(".so") if source.name else "model.so"))
    # Minutes of compilation must not end in a folder that does not exist.
    if not output.absolute().parent.is_dir():
        raise InvalidInput("cannot write the compiled model: no such folder", file=str(output))
    model = _compile(args, dump_dir=args.dump_dir)
    if args.sources:
        _write_sources(model, Path(args.sources))
    model.save(output)
    print(f"{output}: {model!r}, compiled in {model.report.seconds:.1f} s")
    return 0


def run_link(args: argparse.Namespace) -> int:
    """Link a model's object files into a library."""
    import relaxc

    output = relaxc.link(args.objects, args.output or Path(args.objects).with_suffix(".so"))
    print(output)
    return 0


def run_run(args: argparse.Namespace) -> int:
    """Run a compiled model on arrays from files."""
    import relaxc
    from relaxc.random_inputs import random_inputs

    model = relaxc.load(args.model)
    feeds = dict(_read_input(text) for text in args.input)
    if args.random:
        feeds = {**random_inputs(model.inputs, dims=_parse_dims(args.dim)), **feeds}
    result = model(**feeds)
    arrays = result if isinstance(result, tuple) else (result,)
    named = {spec.name: value for spec, value in zip(model.outputs, arrays, strict=True)}
    for name, value in named.items():
        print(f"{name}: {value.dtype}{list(value.shape)}")
        if not args.output:
            print(np.array2string(value, threshold=20, precision=6))
    if args.output:
        try:
            np.savez(args.output, **named)
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise InvalidInput(f"cannot write the outputs: {reason}", file=args.output) from fault
    return 0


def run_bench(args: argparse.Namespace) -> int:
    """Measure a model against other engines and print a table."""
    from relaxc.bench import Measurement, measure_side_by_side
    from relaxc.peers import PEERS, Peer, RelaxcPeer
    from relaxc.random_inputs import random_inputs

    names = _split(args.against)
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise InvalidInput(f"unknown engine {unknown[0]!r}, expected one of {', '.join(PEERS)}")
    if args.rounds < 1:
        raise InvalidInput(f"--rounds must be a positive number, got {args.rounds}")
    model = _compile(args)
    inputs = random_inputs(model.inputs, dims=_parse_dims(args.dim))
    peers: list[Peer] = [RelaxcPeer(model), *(PEERS[name]() for name in names)]
    results = measure_side_by_side(
        *(peers, args.model, inputs),
        threads=model.threads,
        rounds=args.rounds,
        budget_seconds=args.budget,
    )
    ours = results[0].seconds

    def row(result: Measurement) -> tuple[str, ...]:
        if result.seconds is None:
            return (result.name, "-", "-", "-", result.skipped)
        ratio = f"{result.seconds / ours:.2f}x" if ours else "-"
        error = "-" if result.relative_error is None else f"{result.relative_error:.1e}"
        return (result.name, f"{1e3 * result.seconds:.2f}", ratio, error, "")

    columns = ("engine", "median ms", "time / relaxc", "relative error", "")
    _print_table(columns, [row(result) for result in results])
    print(f"{model.threads} threads, medians of interleaved runs, the same inputs")
    if args.json:
        _write_text(args.json, json.dumps([dataclasses.asdict(r) for r in results], indent=1))
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Compare with ONNX Runtime; 1 if an output is off."""
    if not args.tolerance >= 0:
        raise InvalidInput(f"--tolerance {args.tolerance}: expected a number of at least 0")
    if args.coverage:
        return _show_coverage(args)
    if args.bisect:
        return _bisect(args)
    if args.memory:
        return _check_memory(args)
    from relaxc.check import check_against_onnxruntime

    model = _compile(args)
    errors = check_against_onnxruntime(
        model, args.model, seed=args.seed, dims=_parse_dims(args.dim)
    )
    rows = [
        (
            error.name,
            f"{error.relative:.2e}",
            "ok" if error.within(args.tolerance) else "WRONG",
            error.note,
        )
        for error in errors
    ]
    _print_table(("output", "relative error", "", ""), rows)
    return 0 if all(error.within(args.tolerance) for error in errors) else 1


def _show_coverage(args: argparse.Namespace) -> int:
    """Print how each operator is imported; what has no way in, or is refused, is an error."""
    from relaxc.compiler import import_source, running_phase
    from relaxc.coverage import COLUMNS, coverage_rows, model_coverage

    _print_table(COLUMNS, coverage_rows(model_coverage(args.model)))
    # Converters refuse variants that no table of operators shows, such as an attribute's value.
    with running_phase("import"):
        import_source(args.model, dynamic_shapes=_parse_shapes(args.shape) or None)
    print("every operator can be imported")
    return 0


def _check_memory(args: argparse.Namespace) -> int:
    """Compare all tensors with memory planning off and on; 1 if one differs."""
    from relaxc.check_memory import check_memory
    from relaxc.report import format_bytes

    found = check_memory(
        args.model,
        dynamic_shapes=_parse_shapes(args.shape) or None,
        threads=args.threads,
        passes=_pipeline(args),
        seed=args.seed,
        dims=_parse_dims(args.dim),
    )
    sizes = (format_bytes(found.bytes_without_reuse), format_bytes(found.arena_bytes))
    print(f"{found.kernel_calls} kernel calls, {sizes[0]} without reuse, {sizes[1]} with")
    print(found.difference or "the same bits in every tensor, freed bytes poisoned")
    return 0 if found.agrees else 1


def _bisect(args: argparse.Namespace) -> int:
    """Print every configuration tried and the step found; 1 if there is one."""
    import sys

    from relaxc.bisection import bisect
    from relaxc.bisection.trial import Trial

    def show(stage: str, trial: Trial) -> None:
        if not args.quiet:
            print(f"{trial.name}: {trial.fault or trial.worst.relative}", file=sys.stderr)

    found = bisect(
        args.model,
        target=_target(args),
        dynamic_shapes=_parse_shapes(args.shape) or None,
        threads=args.threads,
        passes=_pipeline(args),
        tolerance=args.tolerance,
        seed=args.seed,
        dims=_parse_dims(args.dim),
        observe=show,
    )
    rows = [
        (trial.name, "-", trial.fault)
        if trial.fault
        else (trial.name, f"{trial.worst.relative:.2e}", trial.worst.name)
        for trial in found.trials
    ]
    _print_table(("configuration", "relative error", "output, or why it does not run"), rows)
    for line in [*found.notes, *str(found).splitlines()]:
        print(line)
    return 0 if found.agrees else 1


def run_explain(args: argparse.Namespace) -> int:
    """Print the report of a model, and write it where asked."""
    from rich.console import Console

    if args.memory:
        from relaxc.drawing.memory_picture import check_picture_path

        check_picture_path(args.memory)
    if args.html and not Path(args.html).absolute().parent.is_dir():
        raise InvalidInput("cannot write the report: no such folder", file=args.html)
    if Path(args.model).suffix == ".so":
        import relaxc

        report = relaxc.load(args.model).report
    else:
        comparing = {"plan_memory": {"compare": True}} if args.memory else {}
        report = _compile(args, dump_dir=args.dump_dir, options=comparing).report
    Console().print(report)
    if args.html:
        report.to_html(args.html)
    if args.json:
        report.to_json(args.json)
    if args.memory:
        _explain_memory(args, report)
    return 0


def _explain_memory(args: argparse.Namespace, report: Report) -> None:
    """Draw the memory plan, and print what others would need for the same tensors."""
    from relaxc.drawing.memory_picture import MEMORY_COLUMNS, draw_memory, memory_rows

    draw_memory(report, args.memory)
    _print_table(MEMORY_COLUMNS, memory_rows(report, _onnxruntime_arena(args)))
    counts = report.metrics.get("allocations_per_run", {})
    print(", ".join(f"{what} {count}" for what, count in counts.items()) + " a run")


def _onnxruntime_arena(args: argparse.Namespace) -> int | None:
    """Measure ONNX Runtime's arena; None where it is not there, or cannot run the model."""
    from importlib.util import find_spec

    if Path(args.model).suffix == ".so" or find_spec("onnxruntime") is None:
        return None
    from relaxc.compiler import import_source
    from relaxc.ort_arena import onnxruntime_arena_bytes
    from relaxc.random_inputs import random_inputs

    specs = import_source(args.model, dynamic_shapes=_parse_shapes(args.shape) or None).inputs
    try:
        return onnxruntime_arena_bytes(args.model, random_inputs(specs))
    except InvalidInput as fault:
        print(f"the arena of ONNX Runtime is not measured: {fault.message}")
        return None


def run_opt(args: argparse.Namespace) -> int:
    """Run single passes on an imported model and show the module."""
    import relax_passes.pipeline  # noqa: F401  (registers every pass)
    from relax_passes.dump_module import dump_module, lift_constants
    from relax_passes.pass_base import PassContext
    from relax_passes.pass_effect import count_module
    from relax_passes.pass_list import read_passes
    from relax_passes.run_pass import run_pass
    from relaxc.compiler import import_source, running_phase
    from relaxc.targets import resolve_target
    from relaxc.thread_pool import available_cores
    from tir_schedules.machine import Machine

    if args.list:
        return _list_passes()
    if not args.model:
        raise InvalidInput("opt needs a model (or --list)")
    with _refusing("--passes"):
        passes = read_passes(args.passes)
    if args.output and not Path(args.output).absolute().parent.is_dir():
        raise InvalidInput("cannot write the module: no such folder", file=args.output)
    threads = args.threads or available_cores()
    target = resolve_target(_target(args), threads)
    ctx = PassContext(target, Machine.from_target(target), threads, debug=args.debug)
    with running_phase("import"):
        module = import_source(args.model).module
    counts = count_module(module)
    for graph_pass in passes:
        with running_phase(graph_pass.name), target:
            module, after = run_pass(graph_pass, graph_pass.phase, module, counts, ctx)
        effect = ctx.log.metrics["passes"][-1]
        changed = f"{counts.bindings} -> {after.bindings} bindings"
        shown = changed if effect["modified"] else "nothing to do"
        print(f"# {graph_pass.name}: {shown}, {1e3 * effect['seconds']:.1f} ms")
        counts = after
    for name, what in ctx.log.fired:
        print(f"# {name}: {what}")
    for name, subject, reason in ctx.log.declined:
        print(f"# {name}: not {subject}: {reason}")
    if args.output:
        try:
            dump_module(module, args.output)
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise InvalidInput(f"cannot write the module: {reason}", file=args.output) from fault
    else:
        print(lift_constants(module["main"]).script(show_meta=False))
    return 0


def _list_passes() -> int:
    """Print every pass with its aliases, its options, their values and meanings."""
    from relax_passes.pass_base import REGISTRY
    from relax_passes.pass_options import describe_options

    rows = []
    for p in REGISTRY.values():
        names = "\n".join([p.name, *(f"alias {alias}" for alias in p.aliases)])
        options = [
            f"{name}={value} ({kind}): {meaning}"
            for name, kind, value, meaning in describe_options(p.options)
        ]
        rows.append((names, p.phase, "\n".join([p.summary, *options])))
    _print_table(("pass", "phase", "what it does, and its options"), rows)
    return 0


def _pipeline(args: argparse.Namespace) -> Pipeline | None:
    """Return the pipeline that `--without` and `--pass-options` ask for, None for the default."""
    if not args.without and not args.pass_options:
        return None
    from relax_passes.pass_list import parse_pass_list, read_passes
    from relax_passes.pipeline import default_pipeline

    pipeline = default_pipeline()
    with _refusing("--without"):
        pipeline = pipeline.without(*_split(args.without))
    with _refusing("--pass-options"):
        read_passes(args.pass_options)  # its errors name positions
        for spec in parse_pass_list(args.pass_options):
            pipeline = pipeline.with_options(spec.name, **spec.values)
    return pipeline


@contextmanager
def _refusing(option: str) -> Iterator[None]:
    """Turn a ValueError into an `InvalidInput` that names the command's option."""
    try:
        yield
    except ValueError as fault:
        raise InvalidInput(f"{option}: {fault}") from fault


def _compile(
    args: argparse.Namespace,
    dump_dir: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> CompiledModel:
    """Compile as the command line says; `options` of passes are set on top."""
    import relaxc
    from relax_passes.pipeline import default_pipeline

    passes = _pipeline(args)
    for name, values in (options or {}).items():
        passes = (passes or default_pipeline()).with_options(name, **values)
    return relaxc.compile(
        args.model,
        target=_target(args),
        dynamic_shapes=_parse_shapes(args.shape) or None,
        threads=args.threads,
        precision=args.precision,
        debug=args.debug,
        passes=passes,
        dump_dir=dump_dir,
        progress=False if args.quiet else None,
        tune=args.tune,
    )


def _target(args: argparse.Namespace) -> Any:
    architectures = {"cuda": "arch", "rocm": "mcpu"}
    if args.arch and args.target not in architectures:
        raise InvalidInput("--arch names a GPU: it goes with --target cuda or rocm")
    processor = {
        name: value
        for name, value in (("mcpu", args.mcpu), ("mtriple", args.triple))
        if value is not None
    }
    if args.target == "llvm":
        return {"kind": "llvm", **processor} if processor else args.target
    device = {architectures[args.target]: args.arch} if args.arch else {}
    if processor:
        device["host"] = {"kind": "llvm", **processor}
    return {"kind": args.target, **device} if device else args.target


def _write_sources(model: CompiledModel, folder: Path) -> None:
    """Write the device kernels of a model, each file of them."""
    for name, text in model.device_sources().items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            reason = fault.strerror or str(fault)
            raise InvalidInput(f"cannot write the sources: {reason}", file=str(folder)) from fault
        _write_text(str(folder / name), text)


def _read_input(text: str) -> tuple[str, np.ndarray]:
    name, equals, path = text.partition("=")
    if not equals:
        raise InvalidInput(f"expected NAME=FILE.npy, got {text!r}")
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise InvalidInput(f"cannot read input {name!r}: {reason}", file=path) from fault


def _parse_dims(texts: Sequence[str]) -> dict[str, int]:
    dims = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not size.isdigit():
            raise InvalidInput(f"expected NAME=SIZE, got {text!r}")
        dims[name] = int(size)
    return dims


def _parse_shapes(texts: Sequence[str]) -> dict[str, list[int | str | list[int] | None]]:
    """Read NAME=DIM,DIM: a size, a name (or name<=size), sizes of buckets with "/", or nothing."""
    shapes: dict[str, list[int | str | list[int] | None]] = {}
    for text in texts:
        # An input may be called a=b, a dimension may not, but for its bound: n<=8.
        found = re.fullmatch(r"(.*)(?<!<)=(.*)", text, re.DOTALL)
        if found is None:
            raise InvalidInput(f"expected NAME=DIM,DIM, got {text!r}")
        name, dims = found.groups()
        shapes[name] = [_parse_dim(dim.strip()) for dim in dims.split(",")] if dims else []
    return shapes


def _parse_dim(text: str) -> int | str | list[int] | None:
    parts = text.split("/")
    if len(parts) > 1 and all(part.isdecimal() for part in parts):
        return [int(part) for part in parts]
    return int(text) if text.isdecimal() else text or None


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text)
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise InvalidInput(f"cannot write: {reason}", file=path) from fault


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)
