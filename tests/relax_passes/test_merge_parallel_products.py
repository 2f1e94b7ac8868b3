"""Products of one tensor with several constant matrices become one, where cutting it apart pays."""

from __future__ import annotations

import pytest
from tvm import relax, tirx

from relax_passes.merge_parallel_products import merge_parallel_products
from tests.relax_passes.expand_attention import EXPAND
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def projection(
    bb: relax.BlockBuilder, x: relax.Expr, width: int, seed: int, *, bias: bool = True
) -> relax.Var:
    """Return x @ W + b."""
    product = bb.emit(R.matmul(x, weights(int(x.ty.shape.values[-1]), width, seed=seed)))
    return bb.emit(R.add(weights(width, seed=seed + 9), product)) if bias else product


def self_attention(
    bb: relax.BlockBuilder, x: relax.Expr, *, groups: int = 4, bias_of_k: bool = True
) -> relax.Expr:
    """Return attention of 4 heads of size 8 over projections of x."""
    batch, length, _ = x.ty.shape.values
    parts = []
    for seed, heads in enumerate((4, groups, groups)):
        flat = projection(bb, x, heads * 8, seed, bias=seed != 1 or bias_of_k)
        parts.append(bb.emit(R.reshape(flat, relax.ShapeExpr([batch, length, heads, 8]))))
    return R.nn.attention(*parts, scale=tirx.FloatImm("float32", 0.3))


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("bias_of_k", [True, False])
def test_projections_to_attention_become_one(groups: int, bias_of_k: bool) -> None:
    mod = module(
        (2, 5, 16), lambda bb, x: self_attention(bb, x, groups=groups, bias_of_k=bias_of_k)
    )
    expanded = EXPAND(mod, context())[0]
    changed = check(merge_parallel_products, mod)
    assert operators(changed) == {
        "matmul": 1,
        "add": 1,
        "strided_slice": 3,
        "reshape": 3,
        "nn.attention": 1,
    }
    check(merge_parallel_products, expanded, normal(2, 5, 16))


def test_symbolic_rows_merge_where_the_cut_is_free() -> None:
    rows = tirx.Var("n", "int64")
    changed = check(merge_parallel_products, module((2, rows, 16), self_attention))
    assert operators(changed)["matmul"] == 1


def gated(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Return silu(x G) * (x U): each product takes an epilogue."""
    gate, up = (projection(bb, x, 64, seed, bias=False) for seed in (0, 1))
    return R.multiply(bb.emit(R.nn.silu(gate)), up)


def test_gate_and_up_merge_for_few_rows_only() -> None:
    changed = check(merge_parallel_products, module((1, 1, 16), gated), normal(1, 1, 16))
    assert operators(changed)["matmul"] == 1
    ctx = context()
    check(merge_parallel_products, module((1, 512, 16), gated), fires=False, ctx=ctx)
    assert ctx.log.declined[0][2] == (
        "cutting the merged product apart moves 512 KiB, more than the 64 KiB that 1 kernels less "
        "are worth"
    )


def test_the_option_says_what_a_kernel_is_worth() -> None:
    mod = module((1, 512, 16), gated)
    generous = merge_parallel_products.with_options(launch_kib=512)
    assert operators(check(generous, mod, normal(1, 512, 16)))["matmul"] == 1
    strict = merge_parallel_products.with_options(launch_kib=0)
    check(strict, module((1, 1, 16), gated), fires=False)
    free = check(strict, module((2, 5, 16), self_attention))
    assert operators(free)["matmul"] == 1


def test_copies_of_symbolic_size_decline() -> None:
    ctx = context()
    mod = module((tirx.Var("n", "int64"), 16), gated)
    check(merge_parallel_products, mod, fires=False, ctx=ctx)
    reason = "cutting the merged product apart costs copies of symbolic size"
    assert ctx.log.declined[0] == ("merge_parallel_products", "lv", reason)


def test_heads_that_do_not_start_at_a_multiple_of_their_size_are_copies() -> None:
    """Q of 3 heads of 8, then heads of 16: the slice of those would begin within a head."""

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        rows = 20000
        a = bb.emit(R.reshape(projection(bb, x, 24, 0), (rows, 3, 8)))
        b = bb.emit(R.reshape(projection(bb, x, 32, 1), (rows, 2, 16)))
        moved = [bb.emit(R.permute_dims(t, [1, 0, 2])) for t in (a, b)]
        return R.add(bb.emit(R.sum(moved[0])), bb.emit(R.sum(moved[1])))

    ctx = context()
    check(merge_parallel_products, module((20000, 16), build), fires=False, ctx=ctx)
    assert "cutting the merged product apart moves" in ctx.log.declined[0][2]


def test_products_of_different_tensors_or_with_run_time_weights_stay() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        other = bb.emit(R.nn.relu(x))
        a, b = projection(bb, x, 16, 0), projection(bb, other, 16, 1)
        return R.add(a, bb.emit(R.matmul(bb.emit(R.add(a, b)), bb.emit(R.matmul(x, x)))))

    check(merge_parallel_products, module((16, 16), build), normal(16, 16), fires=False)


def test_a_bias_that_varies_by_row_stays_outside() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        products = [projection(bb, x, 8, seed, bias=False) for seed in (0, 1)]
        shifted = bb.emit(R.add(products[0], weights(4, 8)))
        return R.add(shifted, products[1])

    changed = check(merge_parallel_products, module((4, 16), build), normal(4, 16))
    assert operators(changed) == {"matmul": 1, "strided_slice": 2, "add": 2}


def test_a_product_with_a_second_reader_keeps_its_value_without_the_bias() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        product = projection(bb, x, 8, 0, bias=False)
        biased = bb.emit(R.add(product, weights(8)))
        return R.add(bb.emit(R.add(product, biased)), projection(bb, x, 8, 1))

    changed = check(merge_parallel_products, module((4, 16), build), normal(4, 16))
    assert operators(changed)["matmul"] == 1


def rounded(bb: relax.BlockBuilder, x: relax.Expr, seed: int, kept: bool = False) -> relax.Expr:
    """Return a half-precision product that is summed in float32, or its sum too."""
    weight = relax.const(weights(16, 8, seed=seed).value.numpy().astype("float16"))
    product = bb.emit(R.matmul(x, weight, out_dtype="float32"))
    half = bb.emit(R.astype(product, "float16"))
    bias = relax.const(weights(8, seed=seed + 9).value.numpy().astype("float16"))
    moved = bb.emit(R.permute_dims(bb.emit(R.add(half, bias)), [1, 0]))
    return bb.emit(R.add(R.astype(moved, "float32"), R.permute_dims(product))) if kept else moved


def test_products_of_halves_are_rounded_once_they_are_one() -> None:
    def both(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return R.add(rounded(bb, x, 0), rounded(bb, x, 1))

    changed = check(merge_parallel_products, module((5, 16), both, "float16"))
    made = operators(changed)
    assert (made["matmul"], made["astype"], made["add"]) == (1, 1, 2)


def test_a_sum_that_is_read_before_it_is_rounded_stays() -> None:
    def both(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return R.add(rounded(bb, x, 0, kept=True), rounded(bb, x, 1, kept=True))

    check(merge_parallel_products, module((5, 16), both, "float16"), fires=False)
