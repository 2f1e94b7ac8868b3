"""Convolutions: parallel ones on one input are summed, stacked ones are composed where it pays.

A sum of parallel branches is one convolution (Ding et al., RepVGG, CVPR 2021). Two stacked kernels
compose into one whose window is the sum of both: for C channels 3x3 after 3x3 costs 18 C^2 a pixel
and the composed 5x5 costs 25 C^2, so large windows stay apart; a 1x1 that widens C_in to C_mid
before (or narrows after) a window of k x k pays in one when C_mid is large. The cost decides.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.analysis.definitions import axes_of
from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.transforms import TO_CHANNELS_FIRST

R = relax.op


class _Conv:
    """A conv2d of NCHW data with a constant OIHW kernel and one group."""

    def __init__(self, m: Match, call: tvm.ir.Call | None) -> None:
        if call is None or not m.scope.is_constant(call.args[1]):
            raise Declined("")
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        if layouts not in (("NCHW", "OIHW", "NCHW"), ("NCHW", "OIHW", "")):
            raise Declined("")
        self.data = call.args[0]
        self.kernel = array_of(call.args[1])
        self.strides = [int(v) for v in attrs.strides]
        self.dilation = [int(v) for v in attrs.dilation]
        self.padding = [int(v) for v in attrs.padding]
        self.groups = int(attrs.groups)

    @property
    def is_point(self) -> bool:
        """Return whether each pixel depends on one pixel, at the same place."""
        return self.kernel.shape[2:] == (1, 1) and not any(self.padding) and self.strides == [1, 1]


def _sum_of_branches(m: Match) -> relax.Expr:
    """Write conv(x, a) + conv(x, b) as conv(x, a + b), the smaller window enlarged with zeros."""
    large, small = sorted(
        (_Conv(m, m.producer(value, "nn.conv2d")) for value in (m["x"], m["y"])),
        key=lambda c: -c.kernel[0, 0].size,
    )
    if not large.data.same_as(small.data) or large.groups != small.groups:
        raise Declined("")
    m.refuse_shared()
    if large.strides != small.strides:
        raise Declined("the convolutions have two strides")
    if large.dilation != small.dilation and small.kernel[0, 0].size > 1:
        raise Declined("the convolutions have two dilations")
    if large.kernel.shape[:2] != small.kernel.shape[:2]:
        raise Declined("")
    before = [a - b for a, b in zip(large.padding, small.padding, strict=True)]
    widths = []
    for axis in range(2):
        first, last = before[axis], before[axis + 2]
        if first % large.dilation[axis] or last % large.dilation[axis] or min(first, last) < 0:
            raise Declined("the windows do not lie within each other")
        widths.append((first // large.dilation[axis], last // large.dilation[axis]))
    enlarged = np.pad(small.kernel, [(0, 0), (0, 0), *widths])
    if enlarged.shape != large.kernel.shape:
        raise Declined("the windows do not lie within each other")
    return _convolve(m, large, large.data, large.kernel + enlarged)


def _convolve(m: Match, like: _Conv, data: relax.Expr, kernel: np.ndarray) -> relax.Expr:
    return m.emit(
        R.nn.conv2d(
            data,
            constant_from(kernel),
            strides=like.strides,
            padding=like.padding,
            dilation=like.dilation,
            groups=like.groups,
        )
    )


def _stacked(m: Match) -> relax.Expr:
    """Write conv(conv(x, a), b) as one convolution, where one of the two is 1x1."""
    outer = _Conv(m, m.root)
    inner = _Conv(m, m.producer(m.root.args[0], "nn.conv2d"))
    if outer.groups != 1 or inner.groups != 1:
        raise Declined("a grouped kernel does not compose into a grouped one")
    m.refuse_shared()
    a, b = inner.kernel.astype("float64"), outer.kernel.astype("float64")
    if outer.is_point:
        composed, window = np.einsum("om,mihw->oihw", b[:, :, 0, 0], a), inner
    elif inner.is_point:  # without a bias, a border of zeros stays zero
        composed, window = np.einsum("omhw,mi->oihw", b, a[:, :, 0, 0]), outer
    else:
        raise Declined("both windows are larger than a pixel: the composed one is larger still")
    return _convolve(m, window, inner.data, composed.astype(inner.kernel.dtype))


def _as_product(m: Match) -> relax.Expr:
    """Write a 1x1 convolution between a flattened image and a view of it as a matrix product."""
    conv = _Conv(m, m.producer(m.root.args[0], "nn.conv2d"))
    image = m.producer(conv.data, "reshape")
    if image is None:
        image = m.producer(conv.data, "expand_dims")
    if not conv.is_point or conv.groups != 1 or image is None:
        raise Declined("")
    rows = image.args[0]
    shape = [getattr(d, "value", None) for d in conv.data.ty.shape.values]
    if shape[2:] != [1, 1] or rows.ty.ndim != 2 or m.root.ty.ndim != 2:
        raise Declined("")
    weight = np.ascontiguousarray(conv.kernel[:, :, 0, 0].T)
    return m.emit(R.matmul(rows, constant_from(weight)))


def _layer_before(m: Match) -> relax.Expr:
    """Write a 1x1 convolution of the tokens that a layer computes as one layer of weight a @ b."""
    conv = _Conv(m, m.root)
    turned = m.producer(conv.data, "permute_dims")
    image = None if turned is None else m.producer(turned.args[0], "reshape")
    layer = None if image is None else m.producer(image.args[0], "add")
    if turned is None or image is None or layer is None:
        raise Declined("")
    if axes_of(turned) != TO_CHANNELS_FIRST:
        raise Declined("")
    if not conv.is_point or conv.groups != 1:
        raise Declined("")
    product, shift = layer.args
    if m.scope.is_constant(product):
        product, shift = shift, product
    inner = m.producer(product, "matmul")
    if inner is None or not all(map(m.scope.is_constant, (inner.args[1], shift))):
        raise Declined("")
    weight, bias = array_of(inner.args[1]), array_of(shift)
    out, channels = conv.kernel.shape[:2]
    last = image.args[0].ty.shape.values[-1]
    if weight.ndim != 2 or getattr(last, "value", None) != channels:
        raise Declined("the view does not keep the channels")
    if bias.size != channels or bias.shape[-1] != channels:
        raise Declined("the shift is not one number for each channel")
    m.refuse_shared()
    mixing = conv.kernel[:, :, 0, 0].astype("float64").T
    composed, moved = weight.astype("float64") @ mixing, bias.astype("float64") @ mixing
    tokens = m.emit(R.matmul(inner.args[0], constant_from(composed.astype(weight.dtype))))
    tokens = m.emit(R.add(tokens, constant_from(moved.astype(bias.dtype))))
    shape = [*image.ty.shape.values[:-1], out]
    return m.emit(
        R.permute_dims(m.emit(R.reshape(tokens, relax.ShapeExpr(shape))), TO_CHANNELS_FIRST)
    )


CONVOLUTIONS = Family(
    "convolutions",
    "parallel convolutions are summed, stacked ones composed",
    (
        Rule(
            *("sum_of_branches", "conv2d(x, a) + conv2d(x, b) = conv2d(x, a + b)", Ieee.NONFINITE),
            "always: the smaller window is enlarged with zeros and its product saved",
            pattern="x + y",
            rewrite=_sum_of_branches,
            search=True,
        ),
        Rule(
            *("stacked_kernels", "conv2d(conv2d(x, a), b) = conv2d(x, b o a)", Ieee.NONFINITE),
            "where one is 1x1 and the channels between are many",
            pattern="conv2d(conv2d(...), b)",
            rewrite=_stacked,
            search=True,
        ),
        Rule(
            "layer_before_pixels",
            "conv2d(image(x @ a + c), b) = image(x @ (a @ b) + c @ b)",
            Ieee.NONFINITE,
            "where the layer widens the tokens: they are mixed while still narrow",
            pattern="conv2d(transpose(...), b)",
            rewrite=_layer_before,
            search=True,
        ),
        *(
            Rule(
                f"convolution_as_product_{view}",
                f"{view}(conv2d(reshape(x), a)) = x @ transpose(a)",
                Ieee.ROUNDING,
                "where the image is one pixel: no change of layout",
                pattern=f"{view}(conv2d(...))",
                rewrite=_as_product,
                search=True,
            )
            for view in ("reshape", "squeeze")
        ),
    ),
)
