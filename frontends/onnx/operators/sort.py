"""Selection by order."""

from __future__ import annotations

from tvm import relax

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.sort import top_k
from frontends.dims import Dim, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import as_rows, parts, run_time_size
from frontends.onnx.registry import converter


@converter("TopK", since=1)
def top_k_attribute(op: Op) -> list[relax.Expr]:
    """Select the k greatest elements, k an attribute (opset 1 to 9)."""
    return _top_k(op, int(op.attr("k")))


@converter("TopK", since=10)
def top_k_input(op: Op) -> list[relax.Expr]:
    """Select the k greatest or smallest elements, k perhaps known only at run time."""
    return _top_k(op, run_time_size(op, 1))


def _top_k(op: Op, k: Dim) -> list[relax.Expr]:
    """Emit values and int64 places, in order even where `sorted` is 0, which leaves it open.

    That the axis has k elements is checked at run time where it is not known now.
    """
    axis, largest, dims = op.axis(-1), bool(op.attr("largest", 1)), list(op.shape())
    length = dims[axis]
    if is_static(k) and (k < 0 or (is_static(length) and k > length)):
        raise InvalidModel(f"k is {k}, on an axis of {length}")
    if not (is_static(k) and is_static(length)):
        op.require(prim(k) <= prim(length), "has_k_elements")
    x = as_rows(op, op.x(), dims, axis)
    if is_static(k):
        both = op.te(lambda t: top_k(t, int(k), largest=largest), x, name="top_k")
    else:
        both = op.te(
            lambda t, sizes: top_k(t, sizes[0], largest=largest), x, name="top_k", dims=[k]
        )
    shape = relax.ShapeExpr([*dims[:axis], k, *dims[axis + 1 :]])
    return [exact_reshape(part, shape) for part in parts(op, both, 2)]
