"""Operands that no operator takes are refused in the model's words, without Relax's own objects."""

from __future__ import annotations

import re
from typing import Any

import pytest
from onnx import helper

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from frontends.onnx.relax_reason import plain_reason
from tests.frontends.onnx.run_model import make_model

# How Relax and TIR print their objects.
_INTERNAL = re.compile(r"Metadata|\bir\.|\b[RT]\.|relax|ffi\.|span=")


def message_of(op: str, *inputs: tuple[str, tuple[int, ...]], **attributes: Any) -> str:
    names = [f"x{place}" for place in range(len(inputs))]
    model = make_model(
        [helper.make_node(op, names, ["y"], **attributes)],
        dict(zip(names, inputs, strict=True)), ["y"], opset=22,
    )  # fmt: skip
    for output in model.graph.output:
        output.type.Clear()
    with pytest.raises(InvalidModel) as caught:
        import_onnx(model)
    assert not _INTERNAL.search(caught.value.message)
    return caught.value.message


@pytest.mark.parametrize(
    ("op", "dtype"), [("MatMul", "float32"), ("MatMul", "float16"), ("MatMulInteger", "uint8")]
)
def test_a_scalar_is_no_factor(op: str, dtype: str) -> None:
    message = message_of(op, (dtype, ()), (dtype, (3,)))
    assert message.startswith("a matrix product of shapes [] and [3]: a scalar is no factor")
    assert f"{op} (opset 22) of [x0: {dtype}[]" in message


def test_a_product_sums_over_one_number_of_elements() -> None:
    message = message_of("MatMulInteger", ("int8", (2, 3, 4)), ("int8", (2, 3, 4)))
    assert "it sums over 4 and 3 elements" in message


@pytest.mark.parametrize("op", ["HannWindow", "Range"])
def test_a_vector_where_a_scalar_is_needed(op: str) -> None:
    count = 3 if op == "Range" else 1
    message = message_of(op, *[("int64", (2,))] * count)
    assert "a tensor of shape [2] where one of [1] is needed" in message


def test_a_record_of_an_operator_is_its_name() -> None:
    record = (
        'ir.Op(span=None, name="relax.nn.layer_norm", arguments=(ir.ArgumentInfo(name="x"),), '
        "num_inputs=3, support_level=10)"
    )
    printed = f'{record} takes R.Tensor((T.int64(2), 3), dtype="int8"), not R.shape([T.int64(4)]).'
    assert plain_reason(printed) == "layer_norm takes int8[2, 3], not [4]"
