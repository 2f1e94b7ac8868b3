"""Inputs of sequence and optional type as plain tensors: a compiled model takes nothing else.

The elements of a sequence are inputs called `name[0]`, `name[1]`, ...: how many there are, and
their shapes where the file does not tell, is said by `dynamic_shapes`. An optional input is always
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.symbols import DynamicShapes
from frontends.onnx.value import SequenceValue, Value


class GraphInputs:
    """The inputs of a graph, sequences taken apart.

    Attributes:
        tensors: One declaration for each tensor, in order.
        dynamic_shapes: What is said of the tensors' dimensions.
    """

    def __init__(
        self,
        declared: Iterable[onnx.ValueInfoProto],
        dynamic_shapes: DynamicShapes | None,
        file: str,
    ) -> None:
        """Take the inputs apart.

        Raises:
            UnsupportedOperator: The length of a sequence is not stated, or an input is neither
                tensor nor sequence.
        """
        self.tensors: list[onnx.ValueInfoProto] = []
        self.dynamic_shapes: dict[str, Any] = dict(dynamic_shapes or {})
        self._sequences: dict[str, tuple[str, list[str]]] = {}  # dtype and elements by name
        for value in declared:
            kind = value.type
            if kind.HasField("optional_type"):
                kind = kind.optional_type.elem_type
            if kind.HasField("sequence_type"):
                self._add_sequence(value.name, kind.sequence_type.elem_type, file)
            elif kind.HasField("tensor_type"):
                tensor = onnx.ValueInfoProto(name=value.name)
                tensor.type.CopyFrom(kind)
                self.tensors.append(tensor)
            else:
                raise UnsupportedOperator(
                    "an input of map or sparse type is not supported", tensor=value.name, file=file
                )

    def _add_sequence(self, name: str, element: onnx.TypeProto, file: str) -> None:
        stated: list[str] = []
        while f"{name}[{len(stated)}]" in self.dynamic_shapes:
            stated.append(f"{name}[{len(stated)}]")
        wanted = self.dynamic_shapes.get(name)
        empty = isinstance(wanted, list | tuple) and not wanted
        if not stated and not empty:
            raise UnsupportedOperator(
                "the input is a sequence, whose length must be stated: give the shape of each "
                f'element as dynamic_shapes={{"{name}[0]": [...], ...}}, or "{name}": [] if there '
                "is none",
                tensor=name,
                file=file,
            )
        if empty:
            del self.dynamic_shapes[name]
        if not element.HasField("tensor_type"):
            raise UnsupportedOperator(
                "a sequence of anything but tensors is not supported", tensor=name, file=file
            )
        for key in stated:
            tensor = onnx.ValueInfoProto(name=key)
            tensor.type.CopyFrom(element)
            # A name in the elements' type is a size of each element, not one of them all.
            for dim in tensor.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
            if not tensor.type.tensor_type.HasField("shape"):
                self._declare_rank(tensor, file)
            self.tensors.append(tensor)
        kind = element.tensor_type.elem_type
        self._sequences[name] = (str(onnx.helper.tensor_dtype_to_np_dtype(kind)), stated)

    def _declare_rank(self, tensor: onnx.ValueInfoProto, file: str) -> None:
        dims = self.dynamic_shapes[tensor.name]
        if isinstance(dims, Mapping):
            raise InvalidModel(
                "the element's rank is unknown: dynamic_shapes must list all its dimensions",
                tensor=tensor.name,
                file=file,
            )
        tensor.type.tensor_type.shape.dim.extend(
            onnx.TensorShapeProto.Dimension() for _ in range(len(dims))
        )

    def join(self, values: dict[str, Value]) -> dict[str, Value]:
        """Return the values by the names of the graph's inputs, sequences put together."""
        joined = dict(values)
        for name, (dtype, keys) in self._sequences.items():
            items = tuple(joined.pop(key) for key in keys)
            joined[name] = SequenceValue(name, dtype, items=items)
        return joined
