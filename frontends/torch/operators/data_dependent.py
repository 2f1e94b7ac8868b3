"""Operators whose result's size, or whose size-like result, only the data decides.

One kernel counts, the count is read into the symbol that torch has for it, and a second one fills.
"""

from __future__ import annotations

import torch
from tvm import relax

from frontends.computations.binary_search import insertion_places
from frontends.computations.gather import gather
from frontends.computations.selection import count_nonzero, nonzero
from frontends.computations.unique import describe_groups, group_equal
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.value_checks import require_between
from frontends.torch.registry import converter
from frontends.torch.sizes import product


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


@converter("aten._unique2.default")
def unique(
    b: GraphBuilder,
    x: Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[relax.Expr, ...]:
    """The distinct elements in order, which of them each element is, and how often each occurs."""
    data = b.tensor(x)
    shape, size = b.shape(data), b.result_shape[0]
    rows = b.reshape(data, [1, product(shape), 1])
    order, group, count = b.parts(b.te(group_equal, rows, name="group_equal"), 3)
    if b.is_undefined(size):
        b.define_sizes(count, [size])
    described = b.te(
        lambda o, g, sizes: describe_groups(o, g, sizes[0], is_sorted=True),
        order, group, name="describe_groups", dims=[size],
    )  # fmt: skip
    first, inverse, counts = b.parts(described, 3)
    values = b.te(lambda t, i: gather(t, i, 1), rows, first, name="unique")
    return b.reshape(values, [size]), b.reshape(inverse, shape), counts


@converter("aten.repeat_interleave.Tensor")
def repeat_places(b: GraphBuilder, repeats: Value, *, output_size: Value = None) -> relax.Expr:
    """Each place as often as `repeats` (n,) says: [2, 0, 1] gives [0, 0, 2]."""
    given = b.tensor(repeats, "int64")
    require_between(b, given, "repeats can not be negative")
    # The size is read before the check has its say: it has to be one.
    counts = b.emit(relax.op.maximum(given, relax.const(0, "int64")))
    ends = b.emit(relax.op.cumsum(counts, 0))
    size, length = b.result_shape[0], b.shape(ends)[0]
    if b.is_undefined(size):
        b.define_sizes(b.reshape(b.slice_axis(ends, 0, length - 1, length), [1]), [size])
    numbers = b.emit(relax.op.arange(0, size, 1, "int64"))
    places = b.te(
        lambda t, v: insertion_places(t, v, 0, True, "int64"), ends, numbers, name="repeat_places"
    )
    return b.tensor(places, b.dtype)


@converter("aten._local_scalar_dense.default", "aten.item.default")
def item(b: GraphBuilder, x: Value) -> relax.Expr | None:
    """Read a tensor's one number, a symbol of torch; an integer may be used as a size.

    torch takes a float that is read for a float64.
    """
    value = b.node.meta["val"]
    if not isinstance(value, torch.SymInt | torch.SymFloat):
        is_bool = isinstance(value, bool | torch.SymBool)
        truth = b.reshape(b.tensor(x, "bool" if is_bool else "float64"), [])
        if isinstance(value, torch.SymBool):
            b.number_read(truth)
        return truth
    dtype = "int64" if isinstance(value, torch.SymInt) else "float64"
    number = b.reshape(b.tensor(x, dtype), [])
    b.number_read(number)
    return None if dtype == "int64" else number
