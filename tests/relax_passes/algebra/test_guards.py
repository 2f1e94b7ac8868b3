"""Each guard of a rule that is written as a function: where it declines, and its reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.algebra.rewriter import Rewriter
from relax_passes.algebra.rule_table import RULES
from relax_passes.constant_values import constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from tests.relax_passes.algebra.proofs import Bench, Instance

R = relax.op


def split_and_swapped(b: Bench) -> relax.Expr:
    parts = b.emit(R.split(b.param(2, 6), 3, 1))
    first, second = (b.emit(relax.TupleGetItem(parts, i)) for i in (0, 1))
    return R.concat([first, second], 1)


def split_elsewhere(b: Bench) -> relax.Expr:
    joined = b.emit(R.concat([b.param(2, 3), b.param(2, 3)], 1))
    return R.exp(b.emit(relax.TupleGetItem(b.emit(R.split(joined, [2], 1)), 0)))


def _joined(b: Bench) -> relax.Expr:
    return b.emit(R.concat([b.param(2, 3), b.param(2, 3)], 1))


def _tanh_of_joined(b: Bench) -> relax.Expr:
    return b.emit(R.tanh(_joined(b)))


def _sum_of_joined(b: Bench) -> relax.Expr:
    return b.emit(R.add(_joined(b), b.param(6)))


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
    "zero over zero": (
        *("divide_by_itself", "x may be zero, and 0 / 0 is NaN"),
        lambda b: R.divide((x := b.emit(R.nn.relu(b.param(3)))), x),
    ),
    "layers around a bottleneck": (
        *("stacked_layers", "the product of the weights is larger than both"),
        lambda b: R.matmul(
            b.emit(R.add(b.emit(R.matmul(b.param(2, 9), b.const(9, 3))), b.const(3))), b.const(3, 9)
        ),
    ),
    "a shift of each row between layers": (
        *("stacked_layers", "the shift is not one number for each column"),
        lambda b: R.matmul(
            b.emit(R.add(b.emit(R.matmul(b.param(2, 3), b.const(3, 9))), b.const(2, 1))),
            b.const(9, 3),
        ),
    ),
    "a hidden layer that others read": (
        *("stacked_layers", "has another reader"),
        lambda b: R.add(
            (y := b.emit(R.add(b.emit(R.matmul(b.param(2, 3), b.const(3, 3))), b.const(3)))),
            b.emit(R.matmul(y, b.const(3, 3))),
        ),
    ),
    "a slice of half a part": (
        *("slice_of_viewed_concat", "it takes no whole part of the concatenation"),
        lambda b: R.strided_slice(
            b.emit(R.reshape(b.emit(R.concat([b.param(2, 4), b.param(2, 4)], 1)), (2, 4, 2))),
            *([1], [1], [3]),
        ),
    ),
    "a split of a map elsewhere": (
        *("split_of_map", "it splits elsewhere than it was joined"),
        lambda b: R.exp(b.emit(relax.TupleGetItem(b.emit(R.split(_tanh_of_joined(b), [2], 1)), 0))),
    ),
    "a map that varies along the parts": (
        *("split_of_map", "an operand varies along the joined axis"),
        lambda b: R.exp(b.emit(relax.TupleGetItem(b.emit(R.split(_sum_of_joined(b), 2, 1)), 0))),
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


def parts_mapped(*functions: Callable[[relax.Expr], relax.Expr], axis: int = 1) -> Instance:
    """Cut (2, 4) into columns 0 to 2 and 2 to 4, map each its own way, join them."""

    def build(b: Bench) -> relax.Expr:
        x = b.param(2, 4)
        cuts = [b.emit(R.strided_slice(x, [1], [at], [at + 2])) for at in (0, 2)]
        return R.concat([b.emit(f(part)) for f, part in zip(functions, cuts, strict=True)], axis)

    return build


ROW = constant_from(np.array([1.0, 2.0], "float32"))
NOT_WHOLE: dict[str, Instance] = {
    "two functions": parts_mapped(R.exp, R.tanh),
    "two bounds": parts_mapped(lambda x: R.clip(x, 0.0, 1.0), lambda x: R.clip(x, 0.0, 2.0)),
    "another axis": parts_mapped(R.exp, R.exp, axis=0),
    "one operand for both": parts_mapped(lambda x: R.add(x, ROW), lambda x: R.add(x, ROW)),
    "an operand that is no part": parts_mapped(
        lambda x: R.add(x, relax.const(1.0, "float32")), lambda x: R.add(x, ROW)
    ),
}


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_parts_that_are_no_map_of_a_whole_stay(case: str) -> None:
    bench = Bench(np.random.default_rng(0), "float32")
    mod = bench.finish(NOT_WHOLE[case](bench)).module
    rewriter = Rewriter([rule for rule in RULES if rule.name == "map_of_parts"])
    rewriter.rewrite(mod["main"])
    assert not rewriter.fired


def test_a_part_of_extent_1_joined_with_itself_stays() -> None:
    """f(x) has extent 1 as well; of a symbolic size, a view of it as the join went unnoticed."""
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 1, 1), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            part = builder.emit(R.squeeze(builder.emit(R.exp(x)), [1]))
            joined = builder.emit_output(R.concat([part, part], 1))
        builder.emit_func_output(joined)
    rewriter = Rewriter([rule for rule in RULES if rule.name == "map_of_parts"])
    rewriter.rewrite(builder.get()["main"])
    assert not rewriter.fired


def test_a_whole_is_found_behind_a_chain_that_is_shared_at_every_step() -> None:
    """Each step reads the one before twice: looking at both operands apart would double it."""
    bench = Bench(np.random.default_rng(0), "float32")
    x = bench.param(2, 4)
    parts = [bench.emit(R.strided_slice(x, [1], [at], [at + 2])) for at in (0, 2)]
    for _ in range(30):
        parts = [bench.emit(R.multiply(part, part)) for part in parts]
    mod = bench.finish(R.concat(parts, 1)).module
    rewriter = Rewriter([rule for rule in RULES if rule.name == "map_of_parts"])
    assert count_calls(rewriter.rewrite(mod["main"])) == 30


def count_calls(func: relax.Function) -> int:
    """Return how many operators are left that anything reads."""
    func = func.with_attr("global_symbol", "main")
    live = remove_dead_bindings(tvm.IRModule({"main": func}))["main"]
    return sum(len(block.bindings) for block in live.body.blocks)


def test_a_slice_backwards_of_one_backwards_is_the_tensor() -> None:
    bench = Bench(np.random.default_rng(0), "float32")
    first = bench.emit(R.strided_slice(bench.param(5, 4), [0], [4], [-6], [-1]))
    mod = bench.finish(R.strided_slice(first, [0], [4], [-6], [-1])).module
    rewriter = Rewriter(RULES)
    assert count_calls(rewriter.rewrite(mod["main"])) == 1  # the name of the result
    bench = Bench(np.random.default_rng(0), "float32")
    first = bench.emit(R.strided_slice(bench.param(7), [0], [6], [-8], [-2]))
    mod = bench.finish(R.strided_slice(first, [0], [1], [4])).module
    rewriter.rewrite(mod["main"])
    assert rewriter.fired["slice_of_slice"] == 2  # 4, 2, 0 of 6, 4, 2, 0
