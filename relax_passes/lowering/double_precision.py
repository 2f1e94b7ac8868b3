"""Normalizations of float64 tensors, which TVM's own lowerings refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from relax_passes.constant_values import constant_from
from relax_passes.lowering.rule import LoweringRule, default_lowering, dtype_of
from relax_passes.pass_base import PassContext


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return rules for normalizations of float64; other dtypes take TVM's."""
    return {"relax.nn.layer_norm": _layer_norm, "relax.nn.group_norm": _group_norm}


def _layer_norm(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    if dtype_of(call.args[0]) != "float64":
        return default_lowering(bb, call)
    attrs = call.attrs
    rank = call.args[0].ty.ndim
    axes = [int(axis) % rank for axis in attrs.axes]
    return bb.call_te(
        normalize,
        *call.args,
        axes=axes,
        epsilon=float(attrs.epsilon),
        scale=bool(attrs.scale),
        center=bool(attrs.center),
        primfunc_name_hint="layer_norm",
    )


def _group_norm(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Split the channels into groups, normalize each, and apply scale and shift by channel."""
    if dtype_of(call.args[0]) != "float64":
        return default_lowering(bb, call)
    data, gamma, beta = call.args
    attrs, rank = call.attrs, data.ty.ndim
    channel = int(attrs.channel_axis) % rank
    groups = int(attrs.num_groups)
    shape = list(data.ty.shape.values)
    inner = tirx.floordiv(shape[channel], groups)
    # Every axis after the channels that the operator does not list stays outside of the groups.
    listed = {int(axis) % rank for axis in attrs.axes}
    split = [*shape[:channel], groups, inner, *shape[channel + 1 :]]
    reduced = [channel + 1, *(a + 1 for a in range(rank) if a in listed and a > channel)]
    reduced += [a for a in range(rank) if a in listed and a < channel]
    grouped = bb.emit(relax.op.reshape(data, relax.ShapeExpr(split)))
    ones = constant_from(np.ones(1, "float64"))  # not read
    normal = bb.emit(
        bb.call_te(
            normalize,
            grouped,
            ones,
            ones,
            axes=reduced,
            epsilon=float(attrs.epsilon),
            scale=False,
            center=False,
            primfunc_name_hint="group_norm",
        )
    )
    flat = bb.emit(relax.op.reshape(normal, relax.ShapeExpr(shape)))
    return bb.call_te(
        affine,
        flat,
        gamma,
        beta,
        channel=channel,
        scale=bool(attrs.scale),
        center=bool(attrs.center),
        primfunc_name_hint="scale_and_shift",
    )


def normalize(
    x: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    axes: list[int],
    epsilon: float,
    scale: bool,
    center: bool,
) -> te.Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) over `axes`, times gamma plus beta.

    Args:
        x: Floats of any shape.
        gamma: Shaped as x over `axes`; read if `scale`.
        beta: Likewise; read if `center`.
        axes: The axes of the statistics, ascending.
        epsilon: Added to the variance.
        scale: Whether to multiply by gamma.
        center: Whether to add beta.
    """
    dtype = str(x.dtype)
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    count = tirx.const(1.0, dtype)
    for axis in axes:
        count = count * x.shape[axis].astype(dtype)

    def average(term: Any, name: str) -> te.Tensor:
        over = [te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes]

        def element(*outer: Any) -> Any:
            place: list[Any] = [None] * len(x.shape)
            for axis, index in [*zip(kept, outer, strict=True), *zip(axes, over, strict=True)]:
                place[axis] = index
            return te.sum(term(place, outer), axis=over)

        total = te.compute([x.shape[axis] for axis in kept], element, name=f"{name}_sum")
        return te.compute(total.shape, lambda *i: total(*i) / count, name=name)

    mean = average(lambda place, outer: x(*place), "mean")

    def deviation(place: Any, outer: Any) -> Any:
        difference = x(*place) - mean(*outer)
        return difference * difference

    variance = average(deviation, "variance")

    def result(*place: Any) -> Any:
        outer, inner = [place[axis] for axis in kept], [place[axis] for axis in axes]
        root = tirx.sqrt(variance(*outer) + tirx.const(epsilon, dtype))
        value = (x(*place) - mean(*outer)) / root
        value = value * gamma(*inner) if scale else value
        return value + beta(*inner) if center else value

    return te.compute(x.shape, result, name="normalize")


def affine(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, channel: int, scale: bool, center: bool
) -> te.Tensor:
    """Return x times gamma plus beta, both vectors along the axis `channel`."""

    def result(*place: Any) -> Any:
        value = x(*place) * gamma(place[channel]) if scale else x(*place)
        return value + beta(place[channel]) if center else value

    return te.compute(x.shape, result, name="affine")
