"""Instances of rules whose shapes, values or attributes matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from relax_passes.constant_values import constant_from
from tests.relax_passes.algebra.proofs import Bench, Instance

R = relax.op
Unary = Callable[[relax.Expr], relax.Expr]
Join = Callable[[relax.Expr, relax.Expr], relax.Expr]
Reduction = Callable[..., relax.Expr]


def _products(b: Bench, join, *, same_left: bool) -> relax.Expr:
    if same_left:
        x, y, z = b.param(3, 5), b.const(5, 7), b.param(5, 7)
        return join(b.emit(R.matmul(x, y)), b.emit(R.matmul(x, z)))
    x, y, z = b.param(3, 5), b.param(5, 7), b.param(3, 5)
    return join(b.emit(R.matmul(x, y)), b.emit(R.matmul(z, y)))


def _hoisted(reduction: Reduction, join: Join) -> Instance:
    """Join with a tensor that has one value along the reduced axis, which does not stay."""
    return lambda b: reduction(b.emit(join(b.param(4, 5, 6), b.param(4, 1, 6))), [1])


def _of_broadcast(reduction: Reduction) -> Instance:
    return lambda b: reduction(b.emit(R.broadcast_to(b.param(4, 1, 3), (4, 7, 3))), [1, 2])


def _of_one(reduction: Reduction) -> Instance:
    return lambda b: reduction(b.param(3, 1, 4), [1])


def _of_product(reduction: Reduction) -> Instance:
    return lambda b: reduction(b.emit(R.matmul(b.param(2, 8, 5), b.param(5, 6))), [1])


def _twice(reduction: Reduction) -> Instance:
    return lambda b: reduction(b.emit(reduction(b.param(3, 4, 5), [1])), [1])


def _of_transpose(reduction: Reduction) -> Instance:
    return lambda b: reduction(b.emit(R.permute_dims(b.param(2, 3, 4, 5), [0, 2, 3, 1])), [1, 2])


def _of_unary(reduction: Reduction, inner: Unary) -> Instance:
    return lambda b: reduction(b.emit(inner(b.param(3, 4, 5))), [1])


def _small(join: Join, then: Join) -> Instance:
    """Join a large tensor with two small ones."""
    return lambda b: then(b.emit(join(b.param(3, 4, 5), b.param(5))), b.param(5))


def _broadcasts(join: Join) -> Instance:
    def build(b: Bench) -> relax.Expr:
        dtype = "float32" if b.dtype == "bool" else b.dtype
        x, y = b.param(4, 1, dtype=dtype), b.param(3, 4, 5, dtype=dtype)
        return join(b.emit(R.broadcast_to(x, (3, 4, 5))), y)

    return build


def _chosen(b: Bench) -> relax.Expr:
    wide = b.emit(R.broadcast_to(b.param(4, 1, dtype="bool"), (3, 4, 5)))
    return R.where(wide, b.param(3, 4, 5), b.param(3, 4, 5))


def _before_broadcast(unary: Unary) -> Instance:
    return lambda b: unary(b.emit(R.broadcast_to(b.param(4, 1), (3, 4, 5))))


def _compared(compare: Join) -> Instance:
    def build(b: Bench) -> relax.Expr:
        x, y = (b.param(3, 4, dtype="float32") for _ in range(2))
        return R.logical_not(b.emit(compare(x, y)))

    return build


def _where(build: Callable[[Bench, relax.Expr], relax.Expr]) -> Instance:
    return lambda b: build(b, b.param(3, 4, dtype="bool"))


def _cast_once(b: Bench) -> relax.Expr:
    wide, back = {"f": ("float64", "float32"), "i": ("int64", "float64")}[b.dtype[0]]
    x = b.param(3, 4, dtype={"f": "float32", "i": "int32"}[b.dtype[0]])
    back = "int32" if b.dtype[0] == "i" else back
    return R.astype(b.emit(R.astype(x, wide)), back)


def _compared_cast(compare: Join) -> Instance:
    def build(b: Bench) -> relax.Expr:
        number = b.emit(R.astype(b.param(3, 4, dtype="bool"), "int32"))
        return compare(number, constant_from(np.zeros((), "int32")))

    return build


def _exponentials(b: Bench, *, shifted: bool) -> relax.Expr:
    x = b.param(3, 4, 5)
    shift = b.emit(R.subtract(x, b.emit(R.max(x, [1], keepdims=True)))) if shifted else x
    y = b.emit(R.exp(shift))
    return R.divide(y, b.emit(R.sum(y, [1], keepdims=True)))


def _split_joined(b: Bench) -> relax.Expr:
    parts = b.emit(R.split(b.param(2, 6, 3), [1, 3], 1))
    return R.concat([b.emit(relax.TupleGetItem(parts, i)) for i in range(3)], 1)


def _joined_split(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(4, 3)], 0))
    parts = b.emit(R.split(joined, [2], 0))
    return (
        R.exp(b.emit(relax.TupleGetItem(parts, 1)))
        if b.dtype[0] == "f"
        else R.logical_not(b.emit(R.astype(b.emit(relax.TupleGetItem(parts, 1)), "bool")))
    )


def _concats(b: Bench) -> relax.Expr:
    inner = b.emit(R.concat([b.param(2, 3), b.param(2, 1)], 1))
    return R.concat([b.param(2, 2), inner], 1)


def _joined_cut(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(2, 6)], 1))
    return R.strided_slice(joined, [1], [4], [9], [2])


def _side_by_side(b: Bench) -> relax.Expr:
    """Slice columns 2 to 8 of 12 in two pieces, of every second row."""
    x = b.param(5, 12)
    cuts = [R.strided_slice(x, [0, 1], [0, at], [5, to], [2, 1]) for at, to in ((2, 5), (5, 8))]
    return R.concat([*map(b.emit, cuts)], 1)


def _sliced_pad(b: Bench) -> relax.Expr:
    padded = b.emit(R.nn.pad(b.param(3, 6), [1, 0, 2, 2]))
    return R.strided_slice(padded, [0, 1], [1, 3], [4, 8], [1, 2])


def _sliced_twice(b: Bench) -> relax.Expr:
    first = b.emit(R.strided_slice(b.param(3, 12), [1], [1], [12], [2]))
    return R.strided_slice(first, [0, 1], [1, 1], [3, 5], [1, 2])


def _sliced_join(b: Bench) -> relax.Expr:
    join = R.logical_and if b.dtype == "bool" else R.add
    return R.strided_slice(b.emit(join(b.param(6, 4), b.param(4))), [0], [2], [4])


def _sliced_product(b: Bench) -> relax.Expr:
    product = b.emit(R.matmul(b.param(2, 9, 5), b.param(5, 6)))
    return R.strided_slice(product, [1], [0], [1])


def _pieces(b: Bench) -> list[relax.Expr]:
    x = b.param(2, 6, 3)
    return [b.emit(R.strided_slice(x, [1], [at], [at + 2])) for at in (0, 2, 4)]


def _mapped_parts(b: Bench) -> relax.Expr:
    """Join each part with constants of its own, negate it, and join the parts again."""
    join, negate = (R.logical_or, R.logical_not) if b.dtype == "bool" else (R.subtract, R.negative)
    parts = [b.emit(join(part, b.const(1, 2, 3))) for part in _pieces(b)]
    return R.concat([b.emit(negate(part)) for part in parts], 1)


def _unbound_stack(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(2, 3), b.param(2, 3)], 1))
    stacked = b.emit(R.reshape(joined, (2, 3, 3)))
    return R.strided_slice(stacked, [1], [1], [2])


def _split_of_map(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(4, 3)], 0))
    other = b.param(3)
    mapped = b.emit(R.logical_and(joined, other) if b.dtype == "bool" else R.add(joined, other))
    part = b.emit(relax.TupleGetItem(b.emit(R.split(mapped, [2], 0)), 1))
    return R.logical_not(part) if b.dtype == "bool" else R.negative(part)


def _padded_twice(b: Bench) -> relax.Expr:
    return R.nn.pad(b.emit(R.nn.pad(b.param(2, 3), [1, 0, 0, 2])), [0, 1, 1, 1])


def _pooled_by_one(pool: str, rank: int) -> Instance:
    return lambda b: getattr(R.nn, pool)(b.param(2, 3, *(4, 5, 2)[:rank]), (1,) * rank)


def _between_orders(function: Callable[..., relax.Expr]) -> Instance:
    def build(b: Bench) -> relax.Expr:
        y = b.emit(R.permute_dims(b.param(2, 3, 4, 5), [0, 2, 3, 1]))
        return R.permute_dims(b.emit(function(y, -1)), [0, 3, 2, 1])

    return build


def _identity(b: Bench) -> relax.Expr:
    return R.matmul(b.param(3, 4), constant_from(np.eye(4, dtype=b.dtype)))


def _heads(b: Bench) -> relax.Expr:
    """Project, split into heads, scale."""
    y = b.emit(R.add(b.emit(R.matmul(b.param(1, 5, 6), b.const(6, 8))), b.const(8)))
    y = b.emit(R.permute_dims(b.emit(R.reshape(y, (1, 5, 2, 4))), [0, 2, 1, 3]))
    return R.multiply(y, b.full(0.5))


def _between_layouts(b: Bench) -> relax.Expr:
    y = b.emit(R.permute_dims(b.param(1, 4, 5, 6), [0, 2, 3, 1]))
    return R.permute_dims(b.emit(R.matmul(y, b.const(4, 7))), [0, 3, 1, 2])


def _between_transposes(b: Bench) -> relax.Expr:
    y = b.emit(R.permute_dims(b.param(2, 4, 5), [0, 2, 1]))
    return R.permute_dims(b.emit(R.matmul(y, b.const(4, 7))), [0, 2, 1])


def _branches(b: Bench) -> relax.Expr:
    x = b.param(1, 4, 6, 6)
    large = b.emit(R.nn.conv2d(x, b.const(8, 4, 3, 3), padding=1))
    return R.add(large, b.emit(R.nn.conv2d(x, b.const(8, 4, 1, 1))))


def _stacked(b: Bench) -> relax.Expr:
    wide = b.emit(R.nn.conv2d(b.param(1, 3, 6, 6), b.const(32, 3, 1, 1)))
    return R.nn.conv2d(wide, b.const(8, 32, 3, 3), padding=1)


def _tokens_mixed(b: Bench) -> relax.Expr:
    layer = b.emit(R.matmul(b.param(1, 30, 4), b.const(4, 16)))
    image = b.emit(R.reshape(b.emit(R.add(layer, b.const(16))), (1, 5, 6, 16)))
    return R.nn.conv2d(b.emit(R.permute_dims(image, [0, 3, 1, 2])), b.const(8, 16, 1, 1))


def _one_pixel(view: Callable[[relax.Expr], relax.Expr]) -> Instance:
    def build(b: Bench) -> relax.Expr:
        image = b.emit(R.reshape(b.param(2, 4), (2, 4, 1, 1)))
        return view(b.emit(R.nn.conv2d(image, b.const(6, 4, 1, 1))))

    return build


REDUCED = {"sum": R.sum, "mean": R.mean, "amax": R.max, "amin": R.min}
SYMBOLS = {"multiply": R.multiply, "divide": R.divide, "add": R.add, "subtract": R.subtract}
COMPARE = {
    **{"less": R.less, "greater": R.greater, "less_equal": R.less_equal},
    **{"greater_equal": R.greater_equal, "equal": R.equal, "not_equal": R.not_equal},
}
JOIN = {**SYMBOLS, **COMPARE, "maximum": R.maximum, "minimum": R.minimum, "power": R.power}
UNARY = {
    name: getattr(R, name)
    for name in "exp log sqrt rsqrt tanh sigmoid abs negative erf logical_not".split()
} | {"relu": R.nn.relu}

INSTANCES: dict[str, Instance] = {
    "divide_by_power_of_two": lambda b: R.divide(b.param(*b.shape), b.full(8.0)),
    "divide_by_itself": lambda b: R.divide((y := b.emit(R.exp(b.param(*b.shape)))), y),
    "floor_divide_by_power_of_two": lambda b: R.floor_divide(b.param(*b.shape), b.full(8)),
    "floor_mod_by_power_of_two": lambda b: R.floor_mod(b.param(*b.shape), b.full(16)),
    "same_input_products": lambda b: _products(b, R.add, same_left=True),
    "same_input_difference": lambda b: _products(b, R.subtract, same_left=True),
    "same_weight_products": lambda b: _products(b, R.add, same_left=False),
    "divide_by_exp": lambda b: R.divide(b.param(16, 9, 4), b.emit(R.exp(b.param(4)))),
    "bitwise_not_twice": lambda b: R.bitwise_not(b.emit(R.bitwise_not(b.param(*b.shape)))),
    "softmax": lambda b: _exponentials(b, shifted=True),
    "softmax_unshifted": lambda b: _exponentials(b, shifted=False),
    "log_softmax": lambda b: R.log(b.emit(R.nn.softmax(b.param(*b.shape), axis=-1))),
    **{f"{r}_of_one": _of_one(f) for r, f in REDUCED.items()},
    **{f"{r}_twice": _twice(f) for r, f in REDUCED.items()},
    **{f"{r}_of_broadcast": _of_broadcast(f) for r, f in REDUCED.items()},
    **{f"{r}_of_transpose": _of_transpose(f) for r, f in REDUCED.items()},
    **{f"{r}_of_product": _of_product(f) for r, f in REDUCED.items()},
    **{
        f"{r}_before_{name}": _hoisted(f, join)
        for r, f in REDUCED.items()
        for name, join in SYMBOLS.items()
    },
    **{f"{name}_of_{r}": _of_unary(f, g) for r, f in REDUCED.items() for name, g in UNARY.items()},
    "sum_of_negative": _of_unary(R.sum, R.negative),
    "mean_of_negative": _of_unary(R.mean, R.negative),
    "max_of_negative": _of_unary(R.max, R.negative),
    "min_of_negative": _of_unary(R.min, R.negative),
    "max_of_scaled": lambda b: R.max(b.emit(R.multiply(b.param(3, 4, 5), b.full(0.75))), [0, 2]),
    "product_of_exp": _of_unary(R.prod, R.exp),
    "sum_of_shifted_bits": lambda b: R.sum(b.emit(R.left_shift(b.param(3, 4), b.full(3))), [0]),
    "multiply_by_identity": _identity,
    "constant_matrices_meet": lambda b: R.matmul(
        b.emit(R.matmul(b.param(3, 5), b.const(5, 9))), b.const(9, 4)
    ),
    "stacked_layers": lambda b: R.matmul(
        b.emit(R.add(b.emit(R.matmul(b.param(3, 5), b.const(5, 9))), b.const(9))), b.const(9, 4)
    ),
    "narrow_products_first": lambda b: R.matmul(
        b.emit(R.matmul(b.param(8, 8), b.param(8, 8))), b.param(8, 1)
    ),
    "wide_products_last": lambda b: R.matmul(
        b.param(1, 8), b.emit(R.matmul(b.param(8, 8), b.param(8, 8)))
    ),
    "scale_into_weight_rows": lambda b: R.matmul(
        b.emit(R.multiply(b.param(3, 5), b.const(5))), b.const(5, 7)
    ),
    "scale_into_weight_columns": lambda b: R.multiply(
        b.emit(R.matmul(b.param(3, 5), b.const(5, 7))), b.const(7)
    ),
    "scale_through_views": _heads,
    "scale_the_smaller": lambda b: R.multiply(
        b.emit(R.matmul(b.param(9, 2), b.param(2, 9))), b.full(0.25)
    ),
    "pointwise_convolution": _between_layouts,
    "transposed_product": _between_transposes,
    "sum_of_branches": _branches,
    "stacked_kernels": _stacked,
    "layer_before_pixels": _tokens_mixed,
    "convolution_as_product_reshape": _one_pixel(lambda y: R.reshape(y, (2, 6))),
    "convolution_as_product_squeeze": _one_pixel(lambda y: R.squeeze(y, [2, 3])),
    "small_sums_first": _small(R.add, R.add),
    "small_products_first": _small(R.multiply, R.multiply),
    "small_difference_first": _small(R.add, R.subtract),
    "small_shift_first": _small(R.subtract, R.add),
    "small_shifts_first": _small(R.subtract, R.subtract),
    "small_quotient_first": _small(R.multiply, R.divide),
    "small_factor_first": _small(R.divide, R.multiply),
    "small_divisors_first": _small(R.divide, R.divide),
    "small_maxima_first": _small(R.maximum, R.maximum),
    "small_minima_first": _small(R.minimum, R.minimum),
    "small_and_first": _small(R.logical_and, R.logical_and),
    "small_or_first": _small(R.logical_or, R.logical_or),
    **{f"{name}_broadcasts": _broadcasts(join) for name, join in JOIN.items()},
    "where_broadcasts": _chosen,
    **{f"{name}_before_broadcast": _before_broadcast(unary) for name, unary in UNARY.items()},
    **{
        rule: _compared(COMPARE[name])
        for rule, name in {
            **{"not_equal": "equal", "not_unequal": "not_equal", "not_less": "less"},
            **{"not_greater": "greater", "not_less_equal": "less_equal"},
            "not_greater_equal": "greater_equal",
        }.items()
    },
    "where_known": lambda b: R.where(
        relax.const(np.full((4,), True)), b.param(3, 4), b.param(3, 4)
    ),
    "where_same": _where(lambda b, u: R.where(u, (x := b.param(3, 4)), x)),
    "where_not": _where(
        lambda b, u: R.where(b.emit(R.logical_not(u)), b.param(3, 4), b.param(3, 4))
    ),
    "where_of_where": _where(
        lambda b, u: R.where(u, b.emit(R.where(u, b.param(3, 4), b.param(3, 4))), b.param(3, 4))
    ),
    "where_or_where": _where(
        lambda b, u: R.where(u, b.param(3, 4), b.emit(R.where(u, b.param(3, 4), b.param(3, 4))))
    ),
    "cast_once": _cast_once,
    "cast_is_not_zero": _compared_cast(R.not_equal),
    "cast_is_zero": _compared_cast(R.equal),
    "clip_of_clip": lambda b: R.clip(b.emit(R.clip(b.param(4, 5), -1, 1)), 0, 3),
    "clip_of_relu": lambda b: R.clip(b.emit(R.nn.relu(b.param(4, 5))), -1.0, 6.0),
    "relu_capped": lambda b: R.minimum(b.emit(R.nn.relu(b.param(4, 5))), b.full(1.25)),
    "clip_by_constants": lambda b: R.minimum(
        b.emit(R.maximum(b.param(4, 5), b.full(0.75))), b.full(1.25)
    ),
    "clip_from_above": lambda b: R.maximum(
        b.emit(R.minimum(b.param(4, 5), b.full(1.25))), b.full(0.75)
    ),
    "concat_of_one": lambda b: R.concat([b.param(3, 4)], 1),
    "concat_of_split": _split_joined,
    "concat_of_concat": _concats,
    "split_of_concat": _joined_split,
    "whole_slice": lambda b: R.strided_slice(b.param(3, 4), [1], [0], [4]),
    "slice_of_slice": _sliced_twice,
    "slice_of_concat": _joined_cut,
    "slice_of_pad": _sliced_pad,
    "concat_of_slices": _side_by_side,
    "slice_first": _sliced_join,
    "map_of_parts": _mapped_parts,
    "slice_of_viewed_concat": _unbound_stack,
    "split_of_map": _split_of_map,
    "slice_rows_first": _sliced_product,
    "pad_of_pad": _padded_twice,
    "empty_pad": lambda b: R.nn.pad(b.param(3, 4), [0, 0, 0, 0]),
    "flip_twice": lambda b: R.flip(b.emit(R.flip(b.emit(R.flip(b.param(3, 4), 1)), 0)), 1),
    **{
        f"{name}_of_transpose": _between_orders(getattr(R.nn, name))
        for name in ("softmax", "log_softmax")
    },
    "tile_once": lambda b: R.tile(b.param(3, 4), (1, 1, 1)),
    **{
        f"{kind}_pool{rank}d_of_one": _pooled_by_one(f"{kind}_pool{rank}d", rank)
        for kind in ("max", "avg")
        for rank in (1, 2, 3)
    },
}
