"""What it costs to cut a tensor apart: nothing where readers read it in place, a copy elsewhere."""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.tirx import IntImm

from relax_passes.analysis.definitions import dimensions, operator_name

# These read elements wherever they are: fusion puts the cut into them.
_MOVES = frozenset(
    "permute_dims strided_slice split concat broadcast_to repeat take nn.pad flip tile".split()
)


class SliceCost:
    """Judges cuts along the last axis by who reads the parts."""

    def __init__(self, readers: dict[relax.Var, list[relax.Binding]]) -> None:
        self._readers = readers

    def bytes_moved(self, part: relax.Var, offset: int, total: int) -> int | None:
        """Return the bytes that cutting `part` out costs beyond computing it on its own.

        Args:
            part: A result whose place would be [offset, offset + its width) of a wider tensor.
            offset: Where it begins along the last axis.
            total: The width of the wider tensor.

        Returns:
            0 if all its readers read it in place; None if its size is symbolic and some do not.
        """
        readers = self._readers.get(part, [])
        if readers and all(self._in_place(reader, offset, total) for reader in readers):
            return 0
        dims = dimensions(part)
        if dims is None or not all(isinstance(d, IntImm) for d in dims):
            return None
        itemsize = tvm.runtime.DataType(str(part.ty.dtype.dtype)).itemsize
        return 2 * math.prod(int(d) for d in dims) * itemsize

    def _in_place(self, reader: relax.Binding, offset: int, total: int) -> bool:
        if isinstance(reader.value, relax.Var):  # another name
            after = self._readers.get(reader.var, [])
            return bool(after) and all(self._in_place(b, offset, total) for b in after)
        name = operator_name(reader.value)
        if name != "reshape":
            return name in _MOVES
        head = split_of_last_axis(reader.value)
        if head is None or offset % head or total % head:
            return False
        after = self._readers.get(reader.var, [])
        # A view of heads is cut along the axis of the heads, in the kernel that reads it.
        return bool(after) and all(
            operator_name(b.value) in _MOVES or _is_attention_operand(b.value, reader.var)
            for b in after
        )


def split_of_last_axis(view: tvm.ir.Call) -> int | None:
    """Return size, where `view` is R.reshape from (..., heads * size) to (..., heads, size)."""
    before, after = dimensions(view.args[0]), dimensions(view)
    if not before or after is None or len(after) < 2:
        return None
    if not all(isinstance(d, IntImm) for d in (before[-1], *after[-2:])):
        return None
    heads, size = (int(d) for d in after[-2:])
    return size if size > 0 and heads * size == int(before[-1]) else None


def _is_attention_operand(value: object, var: relax.Var) -> bool:
    return operator_name(value) in ("nn.attention", "nn.attention_bias") and any(
        arg.same_as(var)
        for arg in value.args[:3]  # type: ignore[attr-defined]
    )
