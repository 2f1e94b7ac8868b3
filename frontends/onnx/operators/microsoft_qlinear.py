"""QLinear operators of com.microsoft: dequantize, an ordinary operator, quantize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from frontends.computations.quantization import quantize_once
from frontends.onnx.composed import compose
from frontends.onnx.function_body import FunctionBody
from frontends.onnx.op import Op, normalize_axis, numpy_dtype
from frontends.onnx.registry import converter
from frontends.onnx.value import Value

MICROSOFT = "com.microsoft"


def _give_zero_point(op: Op, place: int) -> None:
    """Give a left out zero point its default: 0 of the data's type, which is the result's too."""
    while len(op.inputs) <= place:
        op.inputs.append(None)
    if op.inputs[place] is None:
        op.inputs[place] = Value.constant("", np.zeros((), numpy_dtype(op.dtype(0))))


def _between(nodes: str, opset: int = 21) -> Any:
    """Return the converter of an operator (X, x_scale, x_zero, y_scale, y_zero) -> Y.

    Args:
        nodes: What makes floats `y` of floats `x`.
        opset: The version of ai.onnx that `nodes` are written for.
    """

    def convert(op: Op) -> list[Value]:
        _give_zero_point(op, 4)
        return compose(
            op,
            f"""(X, x_scale, x_zero, y_scale, y_zero) => (Y) {{
                x = DequantizeLinear(X, x_scale, x_zero)
                {nodes}
                Y = QuantizeLinear(y, y_scale, y_zero)
            }}""",
            opset,
        )

    return convert


_POOL = """AveragePool <
    auto_pad: string = @auto_pad, ceil_mode: int = @ceil_mode, pads: ints = @pads,
    count_include_pad: int = @count_include_pad, kernel_shape: ints = @kernel_shape,
    strides: ints = @strides>"""
_MEAN = "ReduceMean <axes: ints = @axes, keepdims: int = @keepdims>"

converter("QLinearSigmoid", domain=MICROSOFT)(_between("y = Sigmoid(x)"))
converter("QLinearLeakyRelu", domain=MICROSOFT)(
    _between("y = LeakyRelu <alpha: float = @alpha>(x)")
)
converter("QLinearReduceMean", domain=MICROSOFT)(_between(f"y = {_MEAN}(x)", opset=13))


@converter("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(op: Op) -> Any:
    """Return the softmax; `opset` tells whether one axis is normalized or all from it on."""
    version = int(op.attr("opset", 13))
    if version >= 13:
        return _between("y = Softmax <axis: int = @axis>(x)")(op)
    return _between("y = Softmax <axis: int = @axis>(x)", opset=11)(op)


@converter("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(op: Op) -> Any:
    """Average each window of a quantized image, channels first or last.

    Quotients and zero point are rounded once, as ONNX Runtime does.
    """
    _give_zero_point(op, 4)
    nodes = _channels_first(op, _POOL)
    (mean,) = compose(
        op,
        f"""(X, x_scale, x_zero, y_scale, y_zero) => (y) {{
            x = DequantizeLinear(X, x_scale, x_zero)
            {nodes}
        }}""",
    )
    target = op.dtype(4)
    return op.te(
        lambda x, scale, zero: quantize_once(x, scale, zero, target),
        op.builder.expression(mean), op.x(3), op.x(4), name="quantize",
    )  # fmt: skip


@converter("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(op: Op) -> Any:
    """Average each channel of a quantized image, channels first or last."""
    return _between(_channels_first(op, "GlobalAveragePool"))(op)


def _channels_first(op: Op, call: str) -> str:
    """Return the nodes that apply an operator for N,C,... data to `x`, which may be N,...,C."""
    if not op.attr("channels_last", 0):
        return f"y = {call}(x)"
    rank = op.ndim()
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return f"""
        first = Transpose <perm = {first}>(x)
        pooled = {call}(first)
        y = Transpose <perm = {last}>(pooled)"""


@converter("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(op: Op) -> Any:
    """Return window maxima of an image whose channels come last."""
    rank = op.ndim()
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return compose(
        op,
        f"""(X) => (Y) {{
            x = Transpose <perm = {first}>(X)
            y = MaxPool <
                auto_pad: string = @auto_pad, ceil_mode: int = @ceil_mode, pads: ints = @pads,
                dilations: ints = @dilations, kernel_shape: ints = @kernel_shape,
                strides: ints = @strides>(x)
            Y = Transpose <perm = {last}>(y)
        }}""",
    )


@converter("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(op: Op) -> Any:
    """Add or multiply quantized tensors that broadcast."""
    _give_zero_point(op, 7)
    inner = op.node.op_type.removeprefix("QLinear")
    return compose(
        op,
        f"""(A, a_scale, a_zero, B, b_scale, b_zero, c_scale, c_zero) => (C) {{
            a = DequantizeLinear(A, a_scale, a_zero)
            b = DequantizeLinear(B, b_scale, b_zero)
            c = {inner}(a, b)
            C = QuantizeLinear(c, c_scale, c_zero)
        }}""",
    )


@converter("QLinearWhere", domain=MICROSOFT)
def qlinear_where(op: Op) -> Any:
    """Choose between quantized tensors and quantize the choice."""
    return compose(
        op,
        """(condition, X, x_scale, x_zero, Y, y_scale, y_zero, z_scale, z_zero) => (Z) {
            x = DequantizeLinear(X, x_scale, x_zero)
            y = DequantizeLinear(Y, y_scale, y_zero)
            z = Where(condition, x, y)
            Z = QuantizeLinear(z, z_scale, z_zero)
        }""",
    )


@converter("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(op: Op) -> Any:
    """Concatenate tensors quantized differently: triples follow the result's parameters."""
    count = (len(op.inputs) - 2) // 3
    axis = normalize_axis(int(op.required("axis")), op.ndim(2))
    inputs = ["y_scale", "y_zero", *(f"i{k}" for k in range(3 * count))]
    nodes = [
        _node("DequantizeLinear", [f"i{3 * k}", f"i{3 * k + 1}", f"i{3 * k + 2}"], f"x{k}")
        for k in range(count)
    ]
    nodes.append(_node("Concat", [f"x{k}" for k in range(count)], "y", axis=axis))
    nodes.append(_node("QuantizeLinear", ["y", "y_scale", "y_zero"], "Y"))
    return op.expand(FunctionBody(tuple(inputs), ("Y",), tuple(nodes), {"": 21}))


def _node(name: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return onnx.helper.make_node(name, inputs, [output], **attributes)
