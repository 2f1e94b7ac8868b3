"""Matrix products: constant matrices meet, scales go into weights, transposes cancel."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.analysis.definitions import axes_of
from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.transforms import TO_CHANNELS_FIRST, TO_CHANNELS_LAST

R = relax.op


def _scale_inputs(m: Match) -> relax.Expr:
    """Write (x * a) @ b as x @ (a * b), a along the depth of the product."""
    weight, scale = m.array("b"), m.array("a")
    if weight.ndim != 2:
        raise Declined("the weight is a batch of matrices")
    depth = weight.shape[0]
    if scale.size not in (1, depth) or (scale.size > 1 and scale.shape[-1] != depth):
        raise Declined("the factor varies along another axis than the depth of the product")
    m.refuse_shared()
    scaled = weight.astype("float64") * scale.astype("float64").reshape(-1, 1)
    return _product(m, m["x"], constant_from(scaled.astype(weight.dtype)))


def _scale_outputs(m: Match) -> relax.Expr:
    """Write (x @ b) * a as x @ (b * a), a along the width of the product."""
    weight, scale = m.array("b"), m.array("a")
    if weight.ndim != 2:
        raise Declined("the weight is a batch of matrices")
    if scale.size not in (1, weight.shape[1]) or (scale.size > 1 and scale.shape[-1] == 1):
        raise Declined("the factor varies along another axis than the width of the product")
    m.refuse_shared()
    scaled = weight.astype("float64") * scale.astype("float64").reshape(1, -1)
    return _product(m, m["x"], constant_from(scaled.astype(weight.dtype)))


def _product(m: Match, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    product = m.call_named("matmul")
    assert product is not None
    return m.emit(tvm.ir.Call(product.op, [x, y], product.attrs))


def _scale_smaller(m: Match) -> relax.Expr:
    """Write (x @ y) * k as (x * k) @ y where x is smaller than the product."""
    return _product(m, m.emit(R.multiply(m["x"], m["k"])), m["y"])


def _scale_through_views(m: Match) -> relax.Expr:
    """Write views(x @ b + c) * k as views(x @ (b * k) + c * k).

    The views are reshapes and transposes, as between a projection and its heads in attention.
    """
    path: list[tvm.ir.Call] = []
    value, shift = m["x"], None
    factor = m.array("k").astype("float64").reshape(())
    while (call := _one_of(m, value, _MOVES)) is not None:
        path.append(call)
        value = call.args[0]
    if not path:
        raise Declined("")
    bias = _one_of(m, value, ("add",))
    if bias is not None:
        a, b = bias.args
        value, shift = (b, a) if m.scope.is_constant(a) else (a, b)
        if not m.scope.is_constant(shift):
            raise Declined("")
    product = _one_of(m, value, ("matmul",))
    if product is None or not m.scope.is_constant(product.args[1]):
        raise Declined("")
    m.refuse_shared()
    result = m.emit(
        tvm.ir.Call(product.op, [product.args[0], _times(product.args[1], factor)], product.attrs)
    )
    if shift is not None:
        result = m.emit(R.add(result, _times(shift, factor)))
    for call in reversed(path):
        result = m.emit(tvm.ir.Call(call.op, [result, *list(call.args)[1:]], call.attrs))
    return result


def _one_of(m: Match, value: relax.Expr, names: tuple[str, ...]) -> tvm.ir.Call | None:
    call = m.scope.call_of(value)
    return (
        None
        if call is None or m.scope.name_of(call) not in names
        else m.producer(value, m.scope.name_of(call))
    )


def _times(constant: relax.Expr, factor: np.ndarray) -> relax.Expr:
    array = array_of(constant)
    return constant_from((array.astype("float64") * factor).astype(array.dtype))


def _transposed_product(m: Match) -> relax.Expr:
    """Write transpose(transpose(x) @ a) as transpose(a) @ x, the last two axes swapped."""
    product = m.producer(m.root.args[0], "matmul")
    inner = None if product is None else m.producer(product.args[0], "permute_dims")
    if product is None or inner is None:
        raise Declined("")
    weight = product.args[1]
    if not m.scope.is_constant(weight) or weight.ty.ndim != 2:
        raise Declined("")
    if not (_swaps_last(inner) and _swaps_last(m.root)):
        raise Declined("")
    turned = constant_from(np.ascontiguousarray(array_of(weight).T))
    return m.emit(tvm.ir.Call(product.op, [turned, inner.args[0]], product.attrs))


def _pointwise(m: Match) -> relax.Expr:
    """Write NHWC-to-NCHW(NCHW-to-NHWC(x) @ a) as a convolution of one pixel."""
    product = m.producer(m.root.args[0], "matmul")
    inner = None if product is None else m.producer(product.args[0], "permute_dims")
    if product is None or inner is None:
        raise Declined("")
    weight = product.args[1]
    if not m.scope.is_constant(weight) or weight.ty.ndim != 2:
        raise Declined("")
    if axes_of(inner) != TO_CHANNELS_LAST or axes_of(m.root) != TO_CHANNELS_FIRST:
        raise Declined("")
    kernel = np.ascontiguousarray(array_of(weight).T)[:, :, None, None]
    return m.emit(R.nn.conv2d(inner.args[0], constant_from(kernel)))


def _swaps_last(call: relax.Expr) -> bool:
    rank = call.ty.ndim
    return axes_of(call) == [*range(rank - 2), rank - 1, rank - 2]


def _by_identity(m: Match) -> relax.Expr:
    weight = m.array("a")
    if weight.ndim != 2 or weight.shape[0] != weight.shape[1]:
        raise Declined("")
    if not weight.size or weight[0, 0] != 1 or (len(weight) > 1 and weight[0, -1] != 0):
        raise Declined("")  # most weights are told apart by a corner
    if not np.array_equal(weight, np.eye(len(weight), dtype=weight.dtype)):
        raise Declined("")
    return m["x"]


def _weights_meet(m: Match) -> str | None:
    """Refuse weights whose product is larger than both, before it is computed."""
    a, b = m["a"], m["b"]
    if a.ty.ndim == b.ty.ndim == 2:
        rows, inner = (int(d) for d in a.ty.shape.values)
        columns = int(b.ty.shape.values[1])
        if rows * columns > inner * (rows + columns):
            return "the product of the weights is larger than both: a bottleneck"
    m.refuse_shared()
    return None


def _layers_meet(m: Match) -> str | None:
    """Refuse what the matrices alone would, and a shift that is not one number a column."""
    depth = int(m["b"].ty.shape.values[-2]) if m["b"].ty.ndim > 1 else 0
    shift = [int(d) for d in m["c"].ty.shape.values]
    if not shift or shift[-1] != depth:
        return "the shift is not one number for each column"
    return _weights_meet(m)


_MOVES = ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten")
_ROUNDING, _NONFINITE = Ieee.ROUNDING, Ieee.NONFINITE

MATRIX_PRODUCTS = Family(
    "matrix products",
    "constant matrices meet at compile time, scales go into weights, transposes cancel",
    (
        Rule(
            *("multiply_by_identity", "x @ a = x", _NONFINITE),
            *("where a is the identity: no product at all", "fi"),
            rewrite=_by_identity,
            search=True,
        ),
        Rule(
            *("constant_matrices_meet", "(x @ a) @ b = x @ (a @ b)", _NONFINITE),
            "where the product of the weights is not larger than both",
            check=_weights_meet,
            search=True,
        ),
        Rule(
            *("stacked_layers", "(x @ a + c) @ b = x @ (a @ b) + c @ b", _NONFINITE),
            "where the product of the weights is not larger than both",
            check=_layers_meet,
            search=True,
        ),
        Rule(
            *("narrow_products_first", "(x @ y) @ z = x @ (y @ z)", _NONFINITE),
            "where y @ z is narrower than x @ y",
            search=True,
        ),
        Rule(
            *("wide_products_last", "x @ (y @ z) = (x @ y) @ z", _NONFINITE),
            "where x @ y is smaller than y @ z",
            search=True,
        ),
        Rule(
            *("scale_into_weight_rows", "(x * a) @ b = x @ (a * b)", _ROUNDING),
            "where a varies along the depth only, or not at all",
            rewrite=_scale_inputs,
        ),
        Rule(
            *("scale_into_weight_columns", "(x @ b) * a = x @ (b * a)", _ROUNDING),
            "where a varies along the width only, or not at all",
            rewrite=_scale_outputs,
        ),
        Rule(
            *("scale_through_views", "views(x @ b + c) * k = views(x @ (b * k) + c * k)"),
            _ROUNDING,
            "always: attention's scale goes into the projection before the heads",
            pattern="x * k",
            rewrite=_scale_through_views,
            search=True,
        ),
        Rule(
            *("scale_the_smaller", "(x @ y) * k = (x * k) @ y", _ROUNDING),
            "where x is smaller than the product",
            rewrite=_scale_smaller,
            search=True,
        ),
        Rule(
            *("pointwise_convolution", "nchw(nhwc(x) @ a) = conv2d(x, transpose(a))", _ROUNDING),
            "always: two transposes of the image less",
            pattern="transpose(matmul(...))",
            rewrite=_pointwise,
            search=True,
        ),
        Rule(
            *("transposed_product", "transpose(transpose(x) @ a) = transpose(a) @ x", _ROUNDING),
            "always: two transposes less",
            pattern="transpose(matmul(...))",
            rewrite=_transposed_product,
            search=True,
        ),
    ),
)
