"""com.microsoft operators that move, index or transform whole tensors.

Where ai.onnx has the same operator since, the node is imported as that one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.relax import op as R

from frontends.computations.crop_and_resize import crop_and_resize
from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.linear_systems import inverse
from frontends.dims import all_static, is_static
from frontends.errors import InvalidModel
from frontends.onnx.composed import compose
from frontends.onnx.function_body import FunctionBody
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.microsoft import MICROSOFT
from frontends.onnx.registry import converter

# The matrix of an inverse transform has this many rows at most.
_MAX_LENGTH = 4096


@converter("Pad", domain=MICROSOFT)
def pad(op: Op) -> Any:
    """Pad by run-time widths, as ai.onnx does since opset 11."""
    return compose(
        op, "(x, pads, value) => (y) { y = Pad <mode: string = @mode> (x, pads, value) }", 13
    )


@converter("Range", domain=MICROSOFT)
def arange(op: Op) -> Any:
    """Count from start to limit, by 1 if no step is given."""
    if not op.has(2):
        return compose(
            op,
            """(start, limit) => (y) {
                one_int = Constant <value_int = 1> ()
                one = CastLike(one_int, start)
                a = Squeeze(start)
                b = Squeeze(limit)
                y = Range(a, b, one)
            }""",
        )
    return compose(
        op,
        """(start, limit, delta) => (y) {
            a = Squeeze(start)
            b = Squeeze(limit)
            c = Squeeze(delta)
            y = Range(a, b, c)
        }""",
    )


@converter("Trilu", domain=MICROSOFT)
def trilu(op: Op) -> Any:
    """Keep one triangle of the last two axes."""
    return compose(op, "(x, k) => (y) { y = Trilu <upper: int = @upper> (x, k) }")


@converter("Unique", domain=MICROSOFT)
def unique(op: Op) -> Any:
    """Return the different elements in the order of their first places, inverse, and counts."""
    return compose(
        op, "(x) => (y, idx, counts) { y, first, idx, counts = Unique <sorted = 0> (x) }"
    )


@converter("GatherND", domain=MICROSOFT)
def gather_nd(op: Op) -> Any:
    """Take slices at index tuples."""
    return compose(
        op,
        """(x, indices) => (y) {
            wide = Cast <to = 7> (indices)
            y = GatherND(x, wide)
        }""",
    )


@converter("GridSample", domain=MICROSOFT)
def grid_sample(op: Op) -> Any:
    """Sample images at the places of a grid; modes are named as in ai.onnx until opset 19."""
    return compose(
        op,
        """(x, grid) => (y) {
            y = GridSample <
                align_corners: int = @align_corners, mode: string = @mode,
                padding_mode: string = @padding_mode
            > (x, grid)
        }""",
        16,
    )


@converter("ExpandDims", domain=MICROSOFT)
def expand_dims(op: Op) -> relax.Expr:
    """Insert an axis of length 1 at a constant place."""
    return R.expand_dims(op.x(0), normalize_axis(op.ints(1, "axis")[0], op.ndim() + 1))


@converter("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_product(op: Op) -> relax.Expr:
    """Multiply complex numbers, stored as pairs along the last axis; Conj conjugates the second."""
    parts = []
    for place in range(2):
        axis = op.ndim(place) - 1
        if op.shape(place)[axis] != 2:
            raise InvalidModel("the last axis of a complex tensor has 2 elements")
        parts += [
            op.emit(R.strided_slice(op.x(place), [axis], [part], [part + 1])) for part in range(2)
        ]
    a, b, c, d = parts
    if op.node.op_type == "ComplexMulConj":
        d = op.emit(R.negative(d))
    real = op.emit(R.subtract(op.emit(R.multiply(a, c)), op.emit(R.multiply(b, d))))
    imaginary = op.emit(R.add(op.emit(R.multiply(a, d)), op.emit(R.multiply(b, c))))
    return R.concat([real, imaginary], max(op.ndim(0), op.ndim(1)) - 1)


@converter("IsAllFinite", domain=MICROSOFT)
def is_all_finite(op: Op) -> relax.Expr:
    """Tell whether no element of any input is infinite or NaN, as the attributes select."""
    bad = []
    for place in range(len(op.inputs)):
        x = op.x(place)
        if not op.attr("isinf_only", 0):
            bad.append(op.emit(R.isnan(x)))
        if not op.attr("isnan_only", 0):
            bad.append(op.emit(R.isinf(x)))
    counts = [op.emit(R.sum(op.emit(R.astype(b, "float32")))) for b in bad]
    total = counts[0]
    for count in counts[1:]:
        total = op.emit(R.add(total, count))
    return R.equal(total, op.const(0, "float32"))


@converter("CDist", domain=MICROSOFT)
def pairwise_distance(op: Op) -> relax.Expr:
    """Return the Euclidean distance, or its square, of each row of A and each row of B."""
    metric = op.attr("metric", "euclidean")
    rows = op.emit(R.expand_dims(op.x(0), 1))
    columns = op.emit(R.expand_dims(op.x(1), 0))
    difference = op.emit(R.subtract(rows, columns))
    squares = op.emit(R.sum(op.emit(R.multiply(difference, difference)), [2]))
    return squares if metric == "sqeuclidean" else R.sqrt(squares)


@converter("Inverse", domain=MICROSOFT)
def invert(op: Op) -> relax.Expr:
    """Invert the matrices of the last two axes."""
    shape = list(op.shape())
    if len(shape) < 2 or not op.arithmetic.equal(shape[-1], shape[-2]):
        raise InvalidModel("only square matrices have an inverse")
    number = op.arithmetic.product(shape[:-2])
    flat = op.emit(exact_reshape(op.x(), relax.ShapeExpr([number, *shape[-2:]])))
    return exact_reshape(
        op.te(lambda m: inverse(m)[0], flat, name="inverse"), relax.ShapeExpr(shape)
    )


@converter("Rfft", domain=MICROSOFT)
def real_transform(op: Op) -> Any:
    """Transform real numbers along the last axis into the first half of their spectrum."""
    _check_transform(op)
    return compose(
        op,
        """(x) => (y) {
            last = Constant <value_ints = [-1]> ()
            axis = Constant <value_int = -2> ()
            pairs = Unsqueeze(x, last)
            y = DFT <onesided = 1> (pairs, , axis)
        }""",
    )


@converter("Irfft", domain=MICROSOFT)
def inverse_real_transform(op: Op) -> relax.Expr:
    """Return the real numbers that have a half spectrum, an even number of them."""
    _check_transform(op)
    shape = op.shape()
    if not is_static(shape[-2]) or shape[-1] != 2 or shape[-2] < 2:
        raise op.unsupported("a spectrum of symbolic length, or of one number")
    half = int(shape[-2])
    length = 2 * (half - 1)
    if length > _MAX_LENGTH:
        raise op.unsupported(f"a transform of more than {_MAX_LENGTH} numbers")
    # Numbers between the first and the last one stand for their mirror images too.
    angles = 2 * math.pi / length * np.outer(np.arange(half), np.arange(length))
    weight = np.full((half, 1), 2.0 / length)
    weight[[0, -1]] = 1.0 / length
    matrix = np.stack([weight * np.cos(angles), -weight * np.sin(angles)], 1)
    flat = op.emit(exact_reshape(op.x(), relax.ShapeExpr([*shape[:-2], 2 * half])))
    return R.matmul(flat, op.const(matrix.reshape(2 * half, length)))


def _check_transform(op: Op) -> None:
    if int(op.attr("signal_ndim", 1)) != 1 or int(op.attr("normalized", 0)):
        raise op.unsupported("transforms of several axes, or normalized ones")
    if not int(op.attr("onesided", 1)):
        raise op.unsupported("two-sided spectra")


@converter("CropAndResize", domain=MICROSOFT)
def crop(op: Op) -> relax.Expr:
    """Cut boxes out of images and resize each to a constant size."""
    size = op.ints(3, "crop_size")
    if len(size) != 2 or min(size) < 1:
        raise InvalidModel(f"crop_size {size}")
    mode = op.attr("mode", "bilinear")
    if op.dtype() != "float32":
        raise op.unsupported(f"images of {op.dtype()}")
    op.state(1, [op.shape(1)[0], 4])
    op.state(2, [op.shape(1)[0]])
    return op.te(
        lambda x, boxes, images: crop_and_resize(
            x, boxes, images, size=(size[0], size[1]), nearest=mode == "nearest",
            outside=float(op.attr("extrapolation_value", 0.0)),
        ),
        op.x(0), op.x(1), indices_within(op, 2, [op.shape()[0]]), name="crop_and_resize",
    )  # fmt: skip


@converter("NhwcConv", domain=MICROSOFT)
def nhwc_conv(op: Op) -> Any:
    """Convolve data whose channels come last, by a weight (outputs, kernel..., inputs)."""
    rank = op.ndim() - 2
    order = [0, rank + 1, *range(1, rank + 1)]
    kernel = op.attr("kernel_shape")
    if kernel and all_static(op.shape(1)) and list(op.shape(1)[1:-1]) != list(kernel):
        raise op.unsupported("a weight whose channels do not come last")
    back = [0, *range(2, rank + 2), 1]
    inputs = ["x", "w", "b"][: len(op.inputs)]
    conv = onnx.helper.make_node("Conv", ["xt", "wt", *inputs[2:]], ["yt"])
    conv.attribute.extend(op.node.attribute)
    return op.expand(
        FunctionBody(
            tuple(inputs),
            ("y",),
            (
                onnx.helper.make_node("Transpose", ["x"], ["xt"], perm=order),
                onnx.helper.make_node("Transpose", ["w"], ["wt"], perm=order),
                conv,
                onnx.helper.make_node("Transpose", ["yt"], ["y"], perm=back),
            ),
            {"": 21},
        )
    )


@converter("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose(op: Op) -> Any:
    """Run a convolution backward; the pads are an input, which must be constant."""
    node = onnx.helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"])
    node.attribute.extend(a for a in op.node.attribute if a.name != "pads")
    if op.has(2):
        node.attribute.append(onnx.helper.make_attribute("pads", op.ints(2, "pads")))
    inputs = [op.inputs[0], op.inputs[1], op.inputs[3] if op.has(3) else None]
    body = FunctionBody(("x", "w", "b"), ("y",), (node,), {"": 21})
    return op.builder.expand(body, inputs)


@converter("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(op: Op) -> relax.Expr:
    """Look up a bias for each distance of query and key; far distances share logarithmic buckets.

    C. Raffel et al., "Exploring the Limits of Transfer Learning" (T5, 2020), appendix code.
    """
    queries, keys = op.ints(1, "query_length")[0], op.ints(2, "key_length")[0]
    buckets = op.shape()[0]
    if not is_static(buckets):
        raise op.unsupported("a symbolic number of buckets")
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    number, offset = int(buckets), np.zeros_like(distance)
    if op.attr("is_bidirectional", 0):
        number //= 2
        offset = np.where(distance > 0, number, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = number // 2
    far = np.log(np.maximum(distance, 1) / exact) / np.log(op.count("max_distance") / exact)
    far = np.minimum(exact + (far * (number - exact)).astype("int64"), number - 1)
    bucket = offset + np.where(distance < exact, distance, far)
    taken = op.emit(R.take(op.x(), op.const(bucket, "int64"), 0, "clip"))
    return R.expand_dims(op.emit(R.permute_dims(taken, [2, 0, 1])), 0)
