"""Convolutions for a GPU: NHWC, whole chunks of channels, transforms at the edges only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.assign_layout import assign_layout
from relax_passes.pass_base import PassContext
from tests.relax_passes.pass_checks import check, context
from tir_schedules import Machine

R = relax.op
Emit = Callable[[relax.Expr], relax.Var]


def gpu(precision: str = "float32") -> PassContext:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    return PassContext(target, Machine.from_target(target), precision=precision)


def weight(*shape: int, dtype: str = "float32") -> relax.Expr:
    values = np.random.default_rng(sum(shape)).standard_normal(shape) * 0.1
    return relax.const(values.astype(dtype))


def conv(emit: Emit, x: relax.Expr, out: int, kernel: int = 3, groups: int = 1) -> relax.Var:
    per_group = int(x.ty.shape.values[1]) // groups
    packed = weight(out, per_group, kernel, kernel, dtype=str(x.ty.dtype.dtype))
    return emit(R.nn.conv2d(x, packed, padding=kernel // 2, groups=groups))


def module(
    build: Callable[[Emit, relax.Var], relax.Expr], channels: int = 8, dtype: str = "float32"
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, channels, 6, 5), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, x))
        builder.emit_func_output(result)
    return builder.get()


def image(channels: int = 8, dtype: str = "float32") -> np.ndarray:
    shape = (1, channels, 6, 5)
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def convolutions(mod: tvm.IRModule) -> list[tvm.ir.Call]:
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [v for v in values if getattr(getattr(v, "op", None), "name", "") == "relax.nn.conv2d"]


def residual(emit: Emit, x: relax.Var) -> relax.Expr:
    """A bottleneck whose sum and activations lie between its convolutions."""
    y = emit(R.nn.relu(conv(emit, x, 16, 1)))
    y = emit(R.nn.relu(emit(R.add(conv(emit, y, 16), weight(1, 16, 1, 1)))))
    y = emit(R.nn.max_pool2d(emit(R.add(conv(emit, y, 8, 1), x)), (3, 3), (2, 2), (1, 1)))
    return conv(emit, y, 24)


def test_transforms_are_at_the_edges_only() -> None:
    ctx = gpu()
    changed = check(assign_layout, module(residual), image(), ctx=ctx)
    assert {str(call.attrs.data_layout) for call in convolutions(changed)} == {"NHWC"}
    assert ctx.log.metrics["layout_transforms"] == 2


def test_a_processor_has_blocks() -> None:
    changed = assign_layout(module(residual), context())[0]
    assert all("c" in str(call.attrs.data_layout) for call in convolutions(changed))


def test_half_precision_sums_in_float32() -> None:
    mod = module(
        lambda emit, x: conv(emit, emit(R.nn.relu(conv(emit, x, 16))), 16), dtype="float16"
    )
    changed, modified = assign_layout(mod, gpu())
    assert modified
    assert {str(call.attrs.out_dtype) for call in convolutions(changed)} == {"float32"}
    assert str(changed["main"].ret_ty.dtype.dtype) == "float16"
    relax.analysis.well_formed(changed)


@pytest.mark.parametrize(
    ("dtype", "precision", "stored"),
    [("float32", "float32", 8), ("float16", "float32", 8), ("float32", "strict", 6)],
)
def test_channels_are_filled_up_to_whole_chunks(dtype: str, precision: str, stored: int) -> None:
    mod = module(lambda emit, x: conv(emit, x, 16), 6, dtype)
    ctx = gpu(precision)
    changed = assign_layout(mod, ctx)[0]
    (call,) = convolutions(changed)
    assert [int(d) for d in call.args[0].ty.shape.values][3] == stored
    if dtype == "float32":
        check(assign_layout, mod, image(6), ctx=ctx)


def test_an_image_of_few_channels_is_read_where_it_lies() -> None:
    mod = module(lambda emit, x: conv(emit, emit(R.nn.relu(conv(emit, x, 16))), 8), 3)
    ctx = gpu()
    changed = assign_layout(mod, ctx)[0]
    layouts = [str(call.attrs.data_layout) for call in convolutions(changed)]
    assert layouts == ["NCHW", "NHWC"]
    assert {str(call.attrs.out_layout) for call in convolutions(changed)} == {"NHWC"}
    assert ctx.log.metrics["layout_transforms"] == 1


def test_a_transposed_convolution_is_one_of_all_phases() -> None:
    def build(emit: Emit, x: relax.Var) -> relax.Expr:
        y = emit(R.nn.relu(conv(emit, x, 16)))
        return emit(R.nn.conv2d_transpose(y, weight(16, 8, 4, 4), strides=2, padding=1))

    ctx = gpu()
    changed = check(assign_layout, module(build), image(), ctx=ctx)
    assert [int(call.args[1].ty.shape[3]) for call in convolutions(changed)] == [16, 4 * 8]


def test_parts_are_joined_row_by_row() -> None:
    def build(emit: Emit, x: relax.Var) -> relax.Expr:
        parts = relax.Tuple([conv(emit, x, 8), conv(emit, x, 12, 1)])
        return conv(emit, emit(R.concat(parts, axis=1)), 8)

    ctx = gpu()
    changed = check(assign_layout, module(build), image(), ctx=ctx)
    assert len(convolutions(changed)) == 3
    assert ctx.log.metrics["layout_transforms"] == 2


def test_parts_that_are_filled_up_are_joined_in_nchw() -> None:
    def build(emit: Emit, x: relax.Var) -> relax.Expr:
        return emit(R.concat(relax.Tuple([conv(emit, x, 6), conv(emit, x, 8)]), axis=1))

    ctx = gpu()
    check(assign_layout, module(build), image(), ctx=ctx)
    assert ctx.log.metrics["layout_transforms"] == 3


def test_depthwise_convolutions_and_groups_follow() -> None:
    def build(emit: Emit, x: relax.Var) -> relax.Expr:
        y = conv(emit, conv(emit, x, 16, 1), 16, groups=16)
        return conv(emit, conv(emit, y, 16, 1), 16, groups=4)

    ctx = gpu()
    changed = check(assign_layout, module(build), image(), ctx=ctx)
    layouts = [str(call.attrs.data_layout) for call in convolutions(changed)]
    assert layouts == ["NHWC"] * 4
