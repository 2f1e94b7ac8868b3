"""Each guard of a rule that is written as a function: where it declines, and its reason."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relax_passes.algebra.rewriter import Rewriter
from relax_passes.algebra.rule_table import RULES
from tests.relax_passes.algebra.proofs import Bench, Instance

R = relax.op


def split_and_swapped(b: Bench) -> relax.Expr:
    parts = b.emit(R.split(b.param(2, 6), 3, 1))
    first, second = (b.emit(relax.TupleGetItem(parts, i)) for i in (0, 1))
    return R.concat([first, second], 1)


def split_elsewhere(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(2, 3)], 1))
    return R.exp(b.emit(relax.TupleGetItem(b.emit(R.split(joined, [2], 1)), 0)))


def branches(second: Instance) -> Instance:
    """Add a 3x3 convolution of stride 1 and another convolution of the same image."""

    def build(b: Bench) -> relax.Expr:
        x = b.param(1, 4, 7, 7)
        b.image = x  # type: ignore[attr-defined]
        return R.add(b.emit(R.nn.conv2d(x, b.const(8, 4, 3, 3), padding=1)), b.emit(second(b)))

    return build


def reduced(reduce, inner) -> Instance:
    return lambda b: reduce(b.emit(inner(b)))


CASES: dict[str, tuple[str, str, Instance]] = {
    "a cast that loses": (
        *("cast_once", "float16 does not hold every float32"),
        lambda b: R.astype(b.emit(R.astype(b.param(3), "float16")), "float32"),
    ),
    "bounds that cross": (
        *("clip_of_clip", "the bounds cross"),
        lambda b: R.clip(b.emit(R.clip(b.param(3), 2.0, 1.0)), 0.0, 3.0),
    ),
    "bounds above zero": (
        *("clip_of_relu", "the bounds do not hold zero"),
        lambda b: R.clip(b.emit(R.nn.relu(b.param(3))), 1.0, 6.0),
    ),
    "bounds of each channel": (
        *("clip_by_constants", "the bounds are not one number each"),
        lambda b: R.minimum(b.emit(R.maximum(b.param(3), b.const(3))), b.full(9.0)),
    ),
    "parts left out": (
        *("concat_of_split", "not all parts are joined again in their order"),
        split_and_swapped,
    ),
    "another split": ("split_of_concat", "it splits elsewhere than it was joined", split_elsewhere),
    "a slice over two parts": (
        *("slice_of_concat", "it reaches over several parts"),
        lambda b: R.strided_slice(
            b.emit(R.concat([b.param(2, 3), b.param(2, 3)], 1)), [1], [2], [5]
        ),
    ),
    "a slice backwards": (
        *("whole_slice", "a stride is negative"),
        lambda b: R.strided_slice(b.param(4), [0], [3], [-5], [-1]),
    ),
    "borders of two values": (
        *("pad_of_pad", "the borders have two values"),
        lambda b: R.nn.pad(b.emit(R.nn.pad(b.param(3), [1, 1])), [1, 1], "constant", 2.0),
    ),
    "borders of another mode": (
        *("pad_of_pad", "a border is not constant"),
        lambda b: R.nn.pad(b.emit(R.nn.pad(b.param(3), [1, 1], "reflect")), [1, 1]),
    ),
    "exponentials over two axes": (
        *("softmax_unshifted", "the reductions are not along one axis"),
        lambda b: R.divide(
            (y := b.emit(R.exp(b.param(3, 4)))), b.emit(R.sum(y, [0, 1], keepdims=True))
        ),
    ),
    "exponentials whose sum drops its axis": (
        *("softmax_unshifted", "a reduction drops its axis"),
        lambda b: R.divide((y := b.emit(R.exp(b.param(4, 4)))), b.emit(R.sum(y, [1]))),
    ),
    "a slice of the border": (
        *("slice_of_pad", "it keeps some of the border"),
        lambda b: R.strided_slice(b.emit(R.nn.pad(b.param(4), [1, 1])), [0], [0], [4]),
    ),
    "a border that is cut off": (
        *("slice_of_pad", "a border is negative"),
        lambda b: R.strided_slice(b.emit(R.nn.pad(b.param(8), [-1, -1])), [0], [1], [4]),
    ),
    "a division by zero": (
        *("divide_by_constant", "the divisor is zero or not finite"),
        lambda b: R.divide(b.param(3), b.full(0.0)),
    ),
    "a negative factor": (
        *("max_of_scaled", "the factor is not positive"),
        lambda b: R.max(b.emit(R.multiply(b.param(3), b.full(-2.0)))),
    ),
    "one reduction keeps its axes": (
        *("sum_twice", "one reduction keeps its axes, the other does not"),
        lambda b: R.sum(b.emit(R.sum(b.param(3, 4), [1], keepdims=True)), [0]),
    ),
    "axes in another order": (
        *("amax_of_transpose", "the axes that stay change places"),
        lambda b: R.max(b.emit(R.permute_dims(b.param(2, 3, 4), [2, 1, 0])), [1]),
    ),
    "a broadcast that stays": (
        *("sum_of_broadcast", "the broadcast is along an axis that stays"),
        lambda b: R.sum(b.emit(R.broadcast_to(b.param(1, 4), (3, 4))), [1]),
    ),
    "a broadcast of higher rank": (
        *("sum_of_broadcast", "the broadcast raises the rank"),
        lambda b: R.sum(b.emit(R.broadcast_to(b.param(4), (3, 4))), [0]),
    ),
    "a factor of each row": (
        *("scale_into_weight_rows", "along another axis than the depth of the product"),
        lambda b: R.matmul(b.emit(R.multiply(b.param(4, 5), b.const(4, 1))), b.const(5, 6)),
    ),
    "a factor of each row after": (
        *("scale_into_weight_columns", "along another axis than the width of the product"),
        lambda b: R.multiply(b.emit(R.matmul(b.param(4, 5), b.const(5, 6))), b.const(4, 1)),
    ),
    "windows apart": (
        *("sum_of_branches", "the windows do not lie within each other"),
        branches(lambda b: R.nn.conv2d(b.image, b.const(8, 4, 1, 5), padding=[0, 2, 0, 2])),
    ),
    "two large windows": (
        *("stacked_kernels", "both windows are larger than a pixel"),
        lambda b: R.nn.conv2d(
            b.emit(R.nn.conv2d(b.param(1, 3, 9, 9), b.const(9, 3, 3, 3))), b.const(4, 9, 3, 3)
        ),
    ),
    "a grouped kernel": (
        *("stacked_kernels", "a grouped kernel does not compose"),
        lambda b: R.nn.conv2d(
            b.emit(R.nn.conv2d(b.param(1, 3, 9, 9), b.const(9, 3, 1, 1))),
            b.const(9, 1, 3, 3),
            groups=9,
        ),
    ),
    "a large result": (
        *("multiply_by_zero", "the constant result would be large"),
        lambda b: R.multiply(b.param(600, 600), b.full(0.0)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule_declines_with_its_reason(case: str) -> None:
    name, reason, build = CASES[case]
    bench = Bench(np.random.default_rng(0), "float32")
    mod = bench.finish(build(bench)).module
    rewriter = Rewriter([rule for rule in RULES if rule.name == name])
    rewriter.rewrite(mod["main"])
    assert not rewriter.fired
    assert any(reason in text for _, _, text in rewriter.declined), rewriter.declined


def test_stacked_windows_stay_where_composing_costs_more() -> None:
    bench = Bench(np.random.default_rng(0), "float32")
    narrow = bench.emit(R.nn.conv2d(bench.param(1, 64, 9, 9), bench.const(4, 64, 1, 1)))
    mod = bench.finish(R.nn.conv2d(narrow, bench.const(64, 4, 3, 3))).module
    rewriter = Rewriter(RULES)
    rewriter.rewrite(mod["main"])
    assert not rewriter.fired
