"""relaxc as ONNX backend: ONNX's own runner and node cases drive `relaxc.compile` through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import relaxc


class RelaxcRep(BackendRep):
    """A compiled model that takes inputs in the order of the graph's inputs."""

    def __init__(self, model: onnx.ModelProto, compiled: relaxc.CompiledModel) -> None:
        self._compiled = compiled
        defaults = {tensor.name for tensor in model.graph.initializer}
        # A backend is given the inputs without default; a model may name all of its weights.
        self._required = [i.name for i in model.graph.input if i.name not in defaults]
        self._all = [i.name for i in model.graph.input]
        self._outputs = model.graph.output

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run on `inputs`, a list of arrays, and return a tuple of the model's outputs."""
        arrays: Sequence[Any] = list(inputs)
        names = self._required if len(arrays) <= len(self._required) else self._all
        given = dict(zip(names, arrays, strict=False))
        feeds = {spec.name: given[spec.name] for spec in self._compiled.inputs}
        results = self._compiled(**{name: _dense(value) for name, value in feeds.items()})
        tensors = iter([results] if len(self._compiled.outputs) == 1 else results)
        named = {spec.name: next(tensors) for spec in self._compiled.outputs}
        return tuple(_gather(output, named) for output in self._outputs)


class RelaxcBackend(Backend):
    """`onnx.backend.test.BackendTest(RelaxcBackend, __name__)` runs ONNX's cases on relaxc."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> RelaxcRep:
        """Compile a model for `device`; nothing but the model is known, no input values.

        Raises:
            RelaxcError: As `relaxc.compile`.
        """
        target = "cuda" if device.startswith("CUDA") else "llvm"
        threads = int(kwargs.get("threads", 1))
        compiled = relaxc.compile(model, target=target, threads=threads, progress=False)
        return RelaxcRep(model, compiled)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether this machine can run what is compiled for `device`."""
        return device == "CPU"


def _gather(output: onnx.ValueInfoProto, named: dict[str, Any]) -> Any:
    """Return an output; the elements of a sequence are tensors called `name[place]`."""
    if output.name in named:
        return named[output.name]
    places = range(len(named))
    return [named[key] for k in places if (key := f"{output.name}[{k}]") in named]


def _dense(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else np.asarray(value)
