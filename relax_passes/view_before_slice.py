"""View first, slice afterwards.

    reshape(x[..., a : a + h*d], (..., h, d))  =  reshape(x, (..., n, d))[..., a/d : a/d + h, :]

The view is free, and the slice now stands next to the kernel that reads it: it becomes an offset
in attention, or is fused. Slices of one product, as Q, K and V are, come to that form.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator
from tvm.tirx import IntImm

from relax_passes.analysis.definitions import dimensions, operator_name
from relax_passes.analysis.slice_cost import split_of_last_axis
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

NAME = "view_before_slice"


@graph_pass(name=NAME, phase="rewrite")
def view_before_slice(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Split the last axis into heads before slicing it, not after."""
    rewriter = _Exchange(mod)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"viewed before {rewriter.count} slices")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Exchange(CallRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.views: dict[tuple[relax.Expr, str], relax.Var] = {}

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        self.views.clear()  # the views of one block are out of scope in the next
        return super().visit_dataflow_block_(block)

    def replacement(self, view: tvm.ir.Call) -> relax.Expr | None:
        if operator_name(view) != "reshape":
            return None
        cut = self._cut(view.args[0])
        size = split_of_last_axis(view)
        if cut is None or size is None:
            return None
        source, begin, end = cut
        total = (dimensions(source) or [None])[-1]
        if not isinstance(total, IntImm) or int(total) % size or begin % size:
            return None
        lead = (dimensions(view) or [])[:-2]
        shape = relax.ShapeExpr([*lead, int(total) // size, size])
        key = (source, str(shape))
        if key not in self.views:
            self.views[key] = self.builder_.emit(relax.op.reshape(source, shape))
        axes, ends = [len(lead)], [end // size]
        return relax.op.strided_slice(self.views[key], axes, [begin // size], ends, [1])

    def _cut(self, value: relax.Expr) -> tuple[relax.Expr, int, int] | None:
        """Return the tensor and the range along its last axis that `value` is."""
        found = self.look_up(value)
        if isinstance(found, relax.TupleGetItem):
            split = self.look_up(found.tuple_value)
            return _part(split, int(found.index)) if operator_name(split) == "split" else None
        if operator_name(found) != "strided_slice":
            return None
        return slice_of_last_axis(found)


def slice_of_last_axis(call: tvm.ir.Call) -> tuple[relax.Expr, int, int] | None:
    """Return tensor, begin and end of a slice that steps by 1 along the last axis alone."""
    place = slice_of_one_axis(call)
    if place is None or place[0] != call.ty.ndim - 1:
        return None
    return call.args[0], *place[1:]


def slice_of_one_axis(call: tvm.ir.Call) -> tuple[int, int, int] | None:
    """Return axis, begin and end of a slice by constants that steps by 1 along one axis."""
    lists = [getattr(arg, "fields", None) for arg in call.args[1:]]
    if len(lists) < 3 or any(items is None or len(items) != 1 for items in lists):
        return None
    numbers = [_integer(items[0]) for items in lists]  # type: ignore[index]
    dims = dimensions(call.args[0])
    if any(n is None for n in numbers) or dims is None:
        return None
    axis, begin, end, *step = (int(n) for n in numbers if n is not None)
    axis %= call.ty.ndim
    size = dims[axis]
    if step not in ([], [1]) or not isinstance(size, IntImm):
        return None
    begin, end = (n + int(size) if n < 0 else n for n in (begin, end))
    return (axis, begin, end) if 0 <= begin <= end <= int(size) else None


def _part(split: tvm.ir.Call, index: int) -> tuple[relax.Expr, int, int] | None:
    source = split.args[0]
    dims = dimensions(source)
    axis = int(split.attrs.axis) % source.ty.ndim
    if dims is None or axis != source.ty.ndim - 1 or not isinstance(dims[-1], IntImm):
        return None
    total, sections = int(dims[-1]), split.attrs.indices_or_sections
    if isinstance(sections, IntImm | int):
        step = -(-total // int(sections))
        begin, end = index * step, (index + 1) * step
    else:
        edges = [0, *(int(edge) for edge in sections), total]
        begin, end = edges[index], edges[index + 1]
    return (source, begin, end) if begin <= end <= total else None


def _integer(value: object) -> int | None:
    value = getattr(value, "value", value)
    return int(value) if isinstance(value, int | IntImm) else None
