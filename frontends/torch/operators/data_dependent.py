"""Operators whose result's size, or whose size-like result, only the data decides.

One kernel counts, the count is read into the symbol that torch has for it, and a second one fills.
"""

from __future__ import annotations

import torch
from tvm import relax

from frontends.computations.selection import count_nonzero, nonzero
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.registry import converter


@converter("aten.nonzero.default")
def nonzero_places(b: GraphBuilder, x: Value) -> relax.Expr:
    """The coordinates [n, rank] of the elements that are not zero, in order."""
    data, size = b.tensor(x), b.result_shape[0]
    return b.emit(relax.op.permute_dims(_coordinates(b, data, size), [1, 0]))


def mask_places(b: GraphBuilder, mask: relax.Expr, count: Size) -> list[relax.Expr]:
    """Return the `count` places where a mask holds, one index tensor for each of its axes."""
    found = _coordinates(b, mask, count)
    rows = range(b.static(b.shape(found)[0]))
    return [b.reshape(b.slice_axis(found, 0, row, row + 1), [count]) for row in rows]


def _coordinates(b: GraphBuilder, data: relax.Expr, size: Size) -> relax.Expr:
    """Return int64 [rank, size]; `size` takes its value from the data where it has none."""
    shape = b.shape(data)
    flat = data if shape else b.reshape(data, [1])
    if b.is_undefined(size):
        b.define_sizes(b.te(count_nonzero, flat, name="count_nonzero"), [size])
    # The shape of a kernel's result is given by hand: it is no function of its inputs' shapes.
    return b.te(
        lambda x, sizes: nonzero(x, sizes[0], sizes[1:]),
        flat, name="nonzero", dims=[size, *shape],
    )  # fmt: skip


@converter("aten._local_scalar_dense.default", "aten.item.default")
def item(b: GraphBuilder, x: Value) -> relax.Expr | None:
    """Read a tensor's one number, a symbol of torch; an integer may be used as a size.

    torch takes a float that is read for a float64.
    """
    value = b.node.meta["val"]
    if not isinstance(value, torch.SymInt | torch.SymFloat):
        is_bool = isinstance(value, bool | torch.SymBool)
        return b.reshape(b.tensor(x, "bool" if is_bool else "float64"), [])
    dtype = "int64" if isinstance(value, torch.SymInt) else "float64"
    number = b.reshape(b.tensor(x, dtype), [])
    b.number_read(number)
    return None if dtype == "int64" else number
