"""relaxc as ONNX backend: ONNX's own runner and node cases drive `relaxc.compile` through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import relaxc
from relaxc.errors import UnsupportedOperator


class RelaxcRep(BackendRep):
    """A model that takes inputs in the order of the graph's inputs.

    A sequence's length is part of a compiled model, so one with a sequence among its inputs is
    compiled when it is given one; every other model is compiled before any input is known.
    """

    def __init__(self, model: onnx.ModelProto, target: str, threads: int) -> None:
        self._model, self._target, self._threads = model, target, threads
        defaults = {tensor.name for tensor in model.graph.initializer}
        # A backend is given the inputs without default; a model may name all of its weights.
        required = [i for i in model.graph.input if i.name not in defaults]
        self._required = [i.name for i in required]
        self._all = [i.name for i in model.graph.input]
        self._compiled = None if any(_is_sequence(i.type) for i in required) else self._compile({})

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run on `inputs`, a list of arrays, and return a tuple of the model's outputs."""
        arrays: Sequence[Any] = list(inputs)
        names = self._required if len(arrays) <= len(self._required) else self._all
        given: dict[str, Any] = {}
        shapes: dict[str, Any] = {}
        for name, value in zip(names, arrays, strict=False):
            if isinstance(value, list):
                elements = {f"{name}[{k}]": np.asarray(item) for k, item in enumerate(value)}
                given.update(elements)
                shapes.update({key: list(item.shape) for key, item in elements.items()})
                if not elements:
                    shapes[name] = []
            elif value is None:
                raise UnsupportedOperator("an optional input is always given", tensor=name)
            else:
                given[name] = np.asarray(value)
        compiled = self._compiled or self._compile(shapes)
        results = compiled(**{spec.name: given[spec.name] for spec in compiled.inputs})
        tensors = iter([results] if len(compiled.outputs) == 1 else results)
        named = {spec.name: next(tensors) for spec in compiled.outputs}
        return tuple(_gather(output, named) for output in self._model.graph.output)

    def _compile(self, shapes: dict[str, Any]) -> relaxc.CompiledModel:
        return relaxc.compile(
            self._model,
            target=self._target,
            threads=self._threads,
            dynamic_shapes=shapes or None,
            progress=False,
        )


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
        return RelaxcRep(model, target, threads)

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


def _is_sequence(kind: onnx.TypeProto) -> bool:
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    return kind.HasField("sequence_type")
