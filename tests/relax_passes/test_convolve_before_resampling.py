"""Convolutions of one pixel are computed before their input is enlarged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import relax, te, tirx

from relax_passes.convolve_before_resampling import NAME, convolve_before_resampling
from relax_passes.pass_base import PassContext
from tests.relax_passes.image_resizing import enlarge, repeat
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def convolution_sizes(mod: tvm.IRModule) -> list[tuple[int, ...]]:
    """Return (input channels, rows, columns) of each convolution."""
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    calls = [v for v in values if isinstance(v, tvm.ir.Call) and v.op.name == "relax.nn.conv2d"]
    return [tuple(int(d) for d in call.args[0].ty.shape.values[1:]) for call in calls]


def pyramid(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Two maps of an image enlarged to its size, joined with it and mixed."""
    half = bb.emit(R.nn.avg_pool2d(x, (2, 2), (2, 2)))
    quarter = bb.emit(R.nn.avg_pool2d(half, (2, 2), (2, 2)))
    large = enlarge(bb, enlarge(bb, quarter, 2, 16), 3, 16)
    repeated = repeat(bb, repeat(bb, half, 2, 2), 3, 2)
    joined = bb.emit(R.concat([large, x, repeated], axis=1))
    return R.add(bb.emit(R.nn.conv2d(joined, weights(8, 24, 1, 1))), weights(8, 1, 1))


def test_each_part_is_mixed_at_its_own_size() -> None:
    mod = module((2, 8, 16, 16), pyramid)
    ctx = context()
    changed = check(convolve_before_resampling, mod, normal(2, 8, 16, 16), ctx=ctx)
    assert sorted(convolution_sizes(changed)) == [(8, 4, 4), (8, 8, 8), (8, 16, 16)]
    assert operators(changed)["concat"] == 0
    assert any(name == NAME for name, _ in ctx.log.fired)


def test_parts_that_stay_remain_joined() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        half = bb.emit(R.nn.avg_pool2d(x, (2, 2), (2, 2)))
        large = repeat(bb, repeat(bb, half, 2, 2), 3, 2)
        joined = bb.emit(R.concat([x, large, bb.emit(R.nn.relu(x))], axis=1))
        return R.nn.conv2d(joined, weights(8, 24, 1, 1))

    changed = check(convolve_before_resampling, module((1, 8, 8, 8), build), normal(1, 8, 8, 8))
    assert sorted(convolution_sizes(changed)) == [(8, 4, 4), (16, 8, 8)]


def test_symbolic_sizes() -> None:
    h = tirx.Var("h", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.nn.conv2d(repeat(bb, x, 2, 2), weights(8, 8, 1, 1))

    check(convolve_before_resampling, module((1, 8, h, 6), build), normal(1, 8, 5, 6))


def test_a_size_that_is_computed_in_floats() -> None:
    """Enlarged by 1.2, with nothing and with something to move."""
    h = tirx.Var("h", "int64")
    size = tirx.Cast("int64", tirx.floor(tirx.Cast("float32", h) * tirx.const(1.2, "float32")))

    def enlarged(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        def pick(data: te.Tensor) -> te.Tensor:
            last = data.shape[2] - 1
            return te.compute(
                (1, 8, size, 6), lambda n, c, y, i: data(n, c, te.min(y, last), i), name="resize"
            )

        return R.nn.conv2d(bb.emit_te(pick, x), weights(8, 8, 1, 1))

    mod = module((1, 8, h, 6), enlarged)
    assert convolve_before_resampling(mod, context())[1] is False
    plain = module((1, 8, h, 6), lambda bb, x: R.nn.conv2d(x, weights(8, 8, 1, 1)))
    assert convolve_before_resampling(plain, context())[1] is False


def _conv(**attributes: object) -> Callable[[relax.BlockBuilder, relax.Var], relax.Expr]:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        size = 3 if "padding" in attributes else 1
        per_group = 8 // int(str(attributes.get("groups", 1)))
        kernel = weights(8, per_group, size, size)
        return R.nn.conv2d(repeat(bb, x, 2, 2), kernel, **attributes)

    return build


def _read_twice(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    large = repeat(bb, x, 2, 2)
    mixed = bb.emit(R.nn.conv2d(large, weights(8, 8, 1, 1)))
    return R.add(mixed, bb.emit(R.nn.relu(large)))


def _made_smaller(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.nn.conv2d(enlarge(bb, x, 2, 4), weights(8, 8, 1, 1))


def _widens(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """One channel becomes 64: the large image would be moved 64 times."""
    one = bb.emit(R.mean(x, axis=[1], keepdims=True))
    return R.nn.conv2d(repeat(bb, one, 2, 2), weights(64, 1, 1, 1))


STAYS = {
    "a window": _conv(padding=1),
    "strides": _conv(strides=2),
    "groups": _conv(groups=2),
    "read twice": _read_twice,
    "made smaller": _made_smaller,
    "widens": _widens,
}


@pytest.mark.parametrize("build", STAYS.values(), ids=STAYS)
def test_what_stays(build: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> None:
    check(convolve_before_resampling, module((1, 8, 8, 8), build), fires=False)


def test_precision_strict_keeps_the_order_of_sums() -> None:
    plain = context()
    ctx = PassContext(plain.target, plain.machine, precision="strict")
    mod = module((2, 8, 16, 16), pyramid)
    check(convolve_before_resampling, mod, fires=False, ctx=ctx)
    assert {name for name, _, _ in ctx.log.declined} == {NAME}
