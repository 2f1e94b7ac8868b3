"""Transposes between tokens and images are written as transposes of the image."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from relax_passes.assign_layout import assign_layout
from relax_passes.images_of_tokens import images_of_tokens
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import (
    check,
    context,
    module,
    normal,
    operators,
    weights,
)

R = relax.op


def orders(mod: tvm.IRModule) -> list[list[int]]:
    """Return the axes of each transpose of `main`."""
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    calls = [v for v in values if isinstance(v, tvm.ir.Call)]
    return [[int(a) for a in c.attrs.axes] for c in calls if c.op.name == "relax.permute_dims"]


def mixing_between_tokens(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """SegFormer's: tokens, a depthwise convolution of their image, GELU, tokens."""
    image = bb.emit(R.reshape(bb.emit(R.permute_dims(x, [0, 2, 1])), (2, 16, 4, 6)))
    y = bb.emit(R.nn.conv2d(image, weights(16, 1, 3, 3), padding=1, groups=16))
    y = bb.emit(R.add(y, weights(16, 1, 1)))
    tokens = bb.emit(R.permute_dims(bb.emit(R.reshape(y, (2, 16, 24))), [0, 2, 1]))
    return R.matmul(bb.emit(R.nn.gelu(tokens)), weights(16, 4))


def test_both_transposes_are_of_the_image() -> None:
    changed = check(images_of_tokens, module((2, 24, 16), mixing_between_tokens), normal(2, 24, 16))
    assert orders(changed) == [[0, 3, 1, 2], [0, 2, 3, 1]]


def test_an_operator_of_single_elements_joins_the_convolution() -> None:
    changed = check(images_of_tokens, module((2, 24, 16), mixing_between_tokens))
    values = [b.value for block in changed["main"].body.blocks for b in block.bindings]
    names = [v.op.name.removeprefix("relax.") for v in values]
    assert names.index("nn.gelu") == names.index("add") + 1


def test_no_transpose_is_left_where_images_are_nhwc() -> None:
    def transposes(*passes: str) -> int:
        ctx = context()
        pipeline = default_pipeline().until("layout").without(*passes)
        return len(orders(pipeline.run(module((2, 24, 16), mixing_between_tokens), ctx)))

    assert transposes() == 0
    assert transposes("images_of_tokens") >= 2


def test_symbolic_sizes() -> None:
    n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = bb.emit(R.reshape(bb.emit(R.nn.relu(x)), relax.ShapeExpr([n, 8, h * 6])))
        return R.permute_dims(flat, [0, 2, 1])

    changed = check(images_of_tokens, module((n, 8, h, 6), build), normal(2, 8, 4, 6))
    assert orders(changed) == [[0, 2, 3, 1]]


@pytest.mark.parametrize("kind", ["other axes", "channels are split", "read twice"])
def test_what_is_no_image_of_tokens(kind: str) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = bb.emit(R.permute_dims(x, [2, 1, 0] if kind == "other axes" else [0, 2, 1]))
        shape = {"other axes": (8, 24, 1, 2), "channels are split": (2, 4, 2, 24)}
        image = bb.emit(R.reshape(turned, shape.get(kind, (2, 8, 4, 6))))
        return R.add(bb.emit(R.sum(image)), R.sum(turned)) if kind == "read twice" else image

    check(images_of_tokens, module((2, 24, 8), build), fires=False)


def test_the_layout_pass_alone_writes_no_blocks() -> None:
    """It would transpose the image into blocks: 16 channels of 24 pixels are cheaper as NHWC."""
    changed, _ = images_of_tokens(module((2, 24, 16), mixing_between_tokens), context())
    planned, fired = assign_layout(changed, context())
    assert fired and operators(planned)["permute_dims"] == 0
