"""Names inside a private function: values of the function around become its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from frontends.control_flow.private_function import Frame
from frontends.onnx.value import SequenceValue, Value


class CapturedScope(dict[str, Value]):
    """The names that a private function sees while it is built."""

    def __init__(self, outer: Mapping[str, Value], frame: Frame) -> None:
        """`outer` are the names of the function around, `frame` takes what is read of them."""
        super().__init__()
        self._outer, self._frame = outer, frame

    def __missing__(self, name: str) -> Value:
        self[name] = value = self._captured(self._outer[name])
        return value

    def _captured(self, value: Value) -> Value:
        """Return a value of the scope around as it is called inside."""
        if isinstance(value, SequenceValue):
            items = tuple(self._captured(item) for item in value.items)
            return SequenceValue(value.name, value.dtype, items=items)
        if value.array is not None:
            return value  # a constant may be embedded anywhere
        if value.symbolic is not None:
            return Value(value.name, value.dtype, symbolic=value.symbolic)
        if not isinstance(value.expr, relax.Var):
            return value
        captured = self._frame.capture(value.expr)
        return Value(value.name, value.dtype, expr=captured, of_sizes=value.of_sizes)
