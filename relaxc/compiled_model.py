"""A compiled model: call it, inspect it, save it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from frontends.imported_model import TensorSpec
from relax_passes.analysis.fixed_values import PREPARE
from relaxc.bind_inputs import (
    check_computed,
    check_input,
    check_ranges,
    computed_axes,
    from_tensor,
    kind_of,
    order_arguments,
    to_tensor,
)
from relaxc.bound_outputs import BoundOutputs
from relaxc.bound_parameters import (
    BoundParameter,
    BoundParameters,
    bound_parameters,
    unshared,
)
from relaxc.buckets import Buckets, crop, entry_name, pad
from relaxc.compatibility import check_cpu, check_platform
from relaxc.device import device_of
from relaxc.device_sources import device_sources
from relaxc.errors import InvalidInput, RelaxcError
from relaxc.held_states import HeldStates
from relaxc.metadata import Metadata
from relaxc.pickled_model import model_from_bytes, model_to_bytes
from relaxc.preparation import Preparation, prepared_anew
from relaxc.report import Report
from relaxc.run_fault import run_error
from relaxc.run_time_pool import CallSizes
from relaxc.save_model import save_model
from relaxc.stored_elements import from_stored, to_stored
from relaxc.thread_pool import use_threads

# How a thread's functions call `main` where `prepare` stands before it.
_PREPARED = "main, prepared"


class CompiledModel:
    """A model compiled for one target, as `relaxc.compile` and `relaxc.load` return it.

    Safe to call from several threads at once: each thread gets its own virtual machine (stack and
    thread pool) over the one loaded module, so code and weights exist once. Models loaded from one
    file share them too.
    """

    def __init__(
        self,
        executable: Any,
        metadata: Metadata,
        path: Path | None = None,
        weights: Sequence[Any] = (),
        keep: Any = None,
    ) -> None:
        """Wrap what was built or loaded.

        Args:
            executable: A `tvm.relax.VMExecutable`, or the module loaded from `path`; None where
                that cannot be mapped because the device's runtime is missing.
            metadata: Names, types, target and report; what the file's trailer holds.
            path: The file the module was loaded from, if it was.
            weights: The tensors that `metadata.weights` describes.
            keep: What must live as long as the model.
        """
        self._kept = [keep]
        self._executable, self._metadata, self._path = executable, metadata, path
        self._weights = weights
        self._local = threading.local()
        self._lock = threading.Lock()
        self._module: Any = None
        self._bound = BoundParameters({})
        given, results = (
            (set(numbers) for numbers in zip(*metadata.states, strict=True))
            if (metadata.states)
            else (set(), set())
        )
        self._inputs = tuple(s for n, s in enumerate(metadata.inputs) if n not in given)
        self._outputs = tuple(s for n, s in enumerate(metadata.outputs) if n not in results)
        self._computes_sizes = any(computed_axes(spec) for spec in self._inputs)
        self._sizes = CallSizes(self._inputs, self._outputs, metadata.report)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape (symbolic dimensions by name) and dtype of each input; states are none."""
        return self._inputs

    @property
    def parameters(self) -> tuple[TensorSpec, ...]:
        """Those of `inputs` that are parameters or buffers, by `compile(keep_params=True)`."""
        return tuple(spec for spec in self.inputs if spec.is_parameter)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape (symbolic dimensions by name) and dtype of each output; states are none."""
        return self._outputs

    @property
    def states(self) -> tuple[TensorSpec, ...]:
        """Inputs that the model holds itself, by `compile(states=...)`; each thread has its own."""
        return tuple(self._metadata.inputs[given] for given, _ in self._metadata.states)

    def read_state(self, name: str) -> Any:
        """Return a copy of a state of this thread as a NumPy array.

        Raises:
            InvalidInput: If no state has that name.
        """
        return self._held_states().read(name)

    def write_states(self, **values: Any) -> None:
        """Set states of this thread by name, copied; without any, all to zeros.

        Raises:
            InvalidInput: If no state has a name, or a value does not fit.
        """
        self._held_states().write(values)

    @property
    def target(self) -> dict[str, Any]:
        """The target it was compiled for, as TVM's target dict."""
        return dict(self._metadata.target)

    @property
    def threads(self) -> int:
        """How many threads its parallel kernels use."""
        return self._metadata.threads

    @property
    def buckets(self) -> Buckets:
        """The sizes it holds special versions for; `buckets.choose` tells which one a call runs."""
        return self._metadata.buckets

    @property
    def preparation(self) -> Preparation | None:
        """Which inputs a function of its own prepares, None if none; see `prepared_entry`."""
        return self._metadata.preparation

    @property
    def report(self) -> Report:
        """What each pass did, and what the compiled model costs."""
        return self._metadata.report

    @property
    def kernels(self) -> list[dict[str, Any]]:
        """The kernels in `report`: name, schedule rule, FLOPs and bytes of each."""
        return self.report.kernels

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model.

        Args:
            args: Inputs by position: NumPy arrays, torch tensors, or anything with DLPack.
            named: Inputs by name.

        Returns:
            One array for one output, a tuple for several. NumPy in gives NumPy out, torch gives
            torch, anything else gives TVM tensors, which speak DLPack. Elements of types that are
            only stored (int4, float8, ...) are one a byte: `ml_dtypes` arrays, torch's float8, or
            where a library lacks the type, bytes as `frontends.storage_types` describes them.

        Raises:
            InvalidInput: If an argument does not fit; nothing was run.
            RunError: If sizes, indices or memory that the data decides do not fit; the model is as
                usable as before.
            IncompatibleArtifact: If this machine lacks the device the model was compiled for.
        """
        given = self._bound
        values = order_arguments(self.inputs, args, named, given.parameters)
        kinds: list[str] = []
        sizes: dict[str, tuple[int, str]] = {}
        for spec, value in zip(self.inputs, values, strict=True):
            if isinstance(value, BoundParameter):
                kinds.append("parameter")
                continue
            try:
                kinds.append(kind_of(value))
            except InvalidInput as fault:
                raise InvalidInput(f"input {spec.name!r}: {fault.message}") from None
            check_input(spec, value, sizes)
        check_ranges(self._metadata.ranges, sizes)
        kind = _output_kind(kinds)
        found = {name: size for name, (size, _) in sizes.items()}
        if self._computes_sizes:
            check_computed(self.inputs, values, found)
        bound: BoundOutputs | None = getattr(self._local, "bound", None)
        if bound is not None:
            bound.check_sizes(self.outputs, found)
        bucket = self.buckets.choose(found)
        if bucket is not None:
            values = [pad(v, spec, bucket) for v, spec in zip(values, self.inputs, strict=True)]
            kinds = [kind_of(value) for value in values]
        taken = self._taken_prepared(values) if bucket is None else None
        entry = "main" if bucket is None else entry_name(bucket)
        main, device = self._machine(entry if taken is None else _PREPARED)
        chosen = range(len(values)) if taken is None else taken
        tensors = [
            _passed(values[number], kinds[number], self.inputs[number], device) for number in chosen
        ]
        held = self._held_states() if self._metadata.states else None
        if held is not None:
            tensors = held.among(tensors)
        prepared: list[Any] = []
        use_threads(self.threads)
        try:
            if taken is not None:
                prepared = given.prepared(self._machine(PREPARE)[0], device)
            result = main(*tensors, *prepared)
        except RelaxcError:
            raise
        except Exception as fault:  # whatever TVM raises is one kind of error to users
            raise run_error(fault, str(self._path or self.report.source)) from fault
        single = isinstance(result, tvm.runtime.Tensor)
        results = unshared([result] if single else list(result), prepared)
        if held is not None:
            results = held.take_next(results)
            single = len(results) == 1
        arrays = [
            from_stored(from_tensor(tensor, kind), kind, spec.dtype)
            for tensor, spec in zip(results, self.outputs, strict=True)
        ]
        if self._sizes.vary:
            self._sizes.note(*found.values(), *(tuple(array.shape) for array in arrays))
        if bucket is not None:
            arrays = [crop(a, spec, found) for a, spec in zip(arrays, self.outputs, strict=True)]
        if bound is not None:
            arrays = [bound.write(s, a) for s, a in zip(self.outputs, arrays, strict=True)]
        return arrays[0] if single else tuple(arrays)

    def entry(self) -> tuple[Any, Any]:
        """Return the function that this thread calls, unchecked, and the device it runs on.

        It takes TVM tensors, or torch tensors, that are contiguous, aligned to 64 bytes, and of the
        inputs' dtypes and shapes. Nothing checks that.
        """
        return self._machine("main")

    def prepared_entry(self) -> tuple[Any, Any]:
        """Return two functions of this thread, unchecked as `entry`: to prepare inputs, to run.

        The first takes the inputs `preparation.takes`; what it returns may be kept while their
        elements stay the same. The second takes the inputs `preparation.rest`, then that.
        """
        return self._machine(PREPARE)[0], self._machine(_PREPARED)[0]

    def bind_parameters(self, source: Any) -> None:
        """Give the inputs that are parameters, for all calls of all threads from here on.

        A parameter whose memory the compiled code can read, on the CPU, contiguous and aligned, is
        not copied: a change in place, as an optimizer makes it, is seen by the next call. Bind
        again after giving a module other tensors. A call may still give one of them by its name.
        What depends on parameters alone, such as packed weights, is computed by the first call and
        kept while torch counts no change of them; where arrays are NumPy's, in each call.

        Args:
            source: The module, or a mapping from names such as its `state_dict()`; it may hold more
                than the model takes.

        Raises:
            InvalidInput: If one is missing or does not fit.
        """
        preparation = self.preparation
        takes = () if preparation is None else preparation.takes
        prepared = [self.inputs[number].name for number in takes]
        self._bound = BoundParameters(bound_parameters(self.parameters, source), prepared)

    def bind_outputs(self, *args: Any, **named: Any) -> None:
        """Have this thread's calls write outputs into arrays of the caller, and return these.

        Outputs that are not bound are fresh in each call. Called without arrays, it undoes what was
        bound. Other threads are not affected, for two calls must not write to one array at once.

        Args:
            args: NumPy arrays, torch tensors or TVM tensors, by position; None leaves an output
                fresh.
            named: The same by name.

        Raises:
            InvalidInput: If an array does not fit its output.
        """
        self._local.bound = BoundOutputs(self.outputs, args, named)

    def save(self, path: str | Path) -> Path:
        """Write the model as one `.so`: code, weights, names, shapes, target and version.

        The file appears whole or not at all: it is written beside `path` and then renamed. A path
        that ends in `.tar` gets the object files instead, for `relaxc.link` on another machine.

        Returns:
            The path written.

        Raises:
            InvalidInput: If the path cannot be written.
            UnsupportedTarget: If nothing here links for the target's processor, or its kernels.
        """
        return save_model(self._executable, self._metadata, self._weights, Path(path), self._path)

    def device_sources(self) -> dict[str, str]:
        """Return the source text of the device kernels by file name; none for a processor.

        Raises:
            InvalidInput: If the model was loaded: sources are there where it is compiled.
        """
        if self._path is not None:
            raise InvalidInput(
                "a model that was loaded has no sources: compile it", file=str(self._path)
            )
        return device_sources(self._executable.mod)

    def keep(self, what: Any) -> None:
        """Have something live as long as the model."""
        self._kept.append(what)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModel:
        """Return the model itself: nothing that a caller changes in one belongs to it alone."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model as the file that `save` writes; what is bound is left out."""
        return model_from_bytes, (model_to_bytes(self),)

    def __repr__(self) -> str:
        """Show the signature and the target."""

        def show(specs: Sequence[TensorSpec]) -> str:
            return ", ".join(f"{s.name}: {s.dtype}[{', '.join(map(str, s.shape))}]" for s in specs)

        kind = self._metadata.target.get("kind")
        return f"<CompiledModel ({show(self.inputs)}) -> ({show(self.outputs)}) for {kind}>"

    def _held_states(self) -> HeldStates:
        held = getattr(self._local, "states", None)
        if held is None:
            _, device = self._machine("main")
            held = self._local.states = HeldStates(self.states, self._metadata.states, device)
        return held

    def _taken_prepared(self, values: Sequence[Any]) -> tuple[int, ...] | None:
        """Return which inputs `main` takes where the others are bound and prepared, else None."""
        preparation = self.preparation
        if preparation is None or not preparation.takes:
            return None
        bound = all(isinstance(values[number], BoundParameter) for number in preparation.takes)
        return preparation.rest if bound else None

    def _machine(self, entry: str) -> tuple[Any, Any]:
        """Return one of this thread's entry functions and the device it runs on."""
        state = getattr(self._local, "state", None)
        if state is None:
            device = self._device()
            with self._lock:  # linking the module the first time is not thread-safe
                if self._module is None:
                    jit = getattr(self._executable, "jit", None)
                    self._module = jit() if jit is not None else self._executable
                machine = relax.VirtualMachine(self._module, device)
            # The functions do not keep their machine alive, so both are stored.
            functions: dict[str, Any] = {}
            state = self._local.state = (machine, functions, device)
        machine, entries, device = state
        if entry not in entries:
            entries[entry] = self._entry(machine, entry)
        return entries[entry], device

    def _entry(self, machine: Any, entry: str) -> Any:
        preparation = self.preparation
        if preparation is not None and entry == "main":
            prepare, main = self._function(machine, PREPARE), self._function(machine, "main")
            return prepared_anew(preparation, prepare, main)
        return self._function(machine, "main" if entry == _PREPARED else entry)

    def _function(self, machine: Any, name: str) -> Any:
        """Return a function of the library that is given its weights."""
        function = machine[name]
        taken = [self._weights[n] for n in self._metadata.weights.takes.get(name, ())]
        return (lambda *inputs: function(*inputs, *taken)) if taken else function

    def _device(self) -> Any:
        check_platform(self._metadata, self._path)
        check_cpu(self._metadata, self._path)
        return device_of(self._metadata.target, self._path)


def _passed(value: Any, kind: str, spec: TensorSpec, device: Any) -> Any:
    """Return an argument as the tensor that the compiled code takes."""
    if isinstance(value, BoundParameter):
        return value.tensor(device)
    return to_tensor(to_stored(value, kind, spec.dtype), kind, device)


def _output_kind(every: Sequence[str]) -> str:
    kinds = [kind for kind in every if kind != "parameter"]
    if not kinds or all(kind == "numpy" for kind in kinds):
        return "numpy"
    return "torch" if "torch" in kinds else "dlpack"
