"""What each operator becomes in blocks: the plan has decided that it can be computed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.sym import Analyzer

from relax_passes.analysis.channelwise_map import channelwise_map
from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.blocked import Blocked, dims_of
from relax_passes.layout.channels_last import BYTES
from relax_passes.layout.convolution_demands import (
    FEW_CHANNELS,
    has_groups_in_lanes,
    is_depthwise,
    sums_over_blocks_of,
)
from relax_passes.layout.lanes import Lanes, fill_up
from relax_passes.layout.pack_weights import WeightPacking
from relax_passes.layout.transforms import LayoutTransforms
from relax_passes.layout.transposed_convolution import phases_of
from relax_passes.layout.versions import Versions
from relax_passes.lowering.rule import dtype_of
from relax_passes.view_before_slice import slice_of_one_axis


class BlockedOperators:
    """Emits operators in blocks.

    Attributes:
        convolutions: How many of them are convolutions.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        versions: Versions,
        transforms: LayoutTransforms,
        weights: WeightPacking,
        lanes: Lanes,
        mod: tvm.IRModule,
    ) -> None:
        self._builder = builder
        self._mod = mod
        self._versions = versions
        self._transforms = transforms
        self._weights = weights
        self._lanes = lanes
        self._plain = versions.plain
        self.convolutions = 0
        self._rules: dict[str, Callable[[tvm.ir.Call, int], relax.Expr]] = {
            "relax.nn.conv2d": self._conv2d,
            "relax.nn.conv2d_transpose": self._conv2d_transpose,
            "relax.nn.max_pool2d": self._pool,
            "relax.nn.avg_pool2d": self._pool,
            "relax.nn.adaptive_avg_pool2d": self._adaptive_pool,
            "relax.mean": self._mean,
            "relax.concat": self._concat,
            "relax.strided_slice": self._slice,
            "relax.nn.pad": self._pad,
            "relax.image.resize2d": self._resize,
            "relax.permute_dims": self._permute,
            "relax.astype": self._unary,
            "relax.call_tir": self._map,
        }
        self._rules.update(dict.fromkeys(UNARY, self._unary))
        self._rules.update(dict.fromkeys(BINARY, self._binary))

    def emit(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        """Return the result of `call` in blocks of the given size."""
        return self._rules[call.op.name](call, block)

    def _conv2d(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        if self._lanes.one_block:
            return self._convolve_pixels(call, block)
        data, weight = call.args
        attrs = call.attrs
        groups, per_group = int(attrs.groups), int(dims_of(weight)[1])
        kernel_block = block
        if is_depthwise(call):
            in_block, kernel_in = block, 1
            groups += fill_up(groups, block)
            if self._lanes.is_channels_last(block):
                kernel_block = self._lanes.count
        elif has_groups_in_lanes(call, block, self._lanes):
            in_block, kernel_in = block, per_group
            groups += fill_up(groups * per_group, block) // per_group
        elif groups > 1:
            in_block = kernel_in = self._lanes.choose_even(per_group)
        else:
            in_block = kernel_in = self._block_of(data, call)
        x = self._versions.of(data, in_block)
        self.convolutions += 1
        return relax.op.nn.conv2d(
            x.value,
            self._weights.kernel(self._plain(weight), kernel_in, kernel_block),
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            groups=groups,
            data_layout=f"NCHW{in_block}c",
            kernel_layout=f"OIHW{kernel_in}i{kernel_block}o",
            out_layout=f"NCHW{block}c",
        )

    def _convolve_pixels(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        """Emit a convolution of four axes, NHWC; an image of few channels is read in NCHW."""
        data, weight = call.args
        attrs, groups, per_group = call.attrs, int(call.attrs.groups), int(dims_of(weight)[1])
        channels = int(dims_of(data)[1])
        image = channels <= FEW_CHANNELS and groups == 1 and data not in self._versions.blocked
        if image:
            x, kernel_in = self._plain(data), channels
        else:
            if is_depthwise(call):
                channels, kernel_in = block, 1
                groups += fill_up(groups, block)
            elif groups > 1:
                kernel_in = per_group
            else:
                channels = kernel_in = self._block_of(data, call)
            x = self._nhwc(self._versions.of(data, channels).value)
        packed = self._weights.kernel(self._plain(weight), kernel_in, block)
        return self._convolve(
            x,
            packed,
            dtype_of(call),
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            groups=groups,
            data_layout="NCHW" if image else "NHWC",
        )

    def _convolve(
        self, x: relax.Expr, packed: relax.Expr, dtype: str, **attributes: Any
    ) -> relax.Expr:
        """Emit a convolution with a result in NHWC, seen as one block, and with what fills it up.

        Sums are in float32, as Tensor Cores have them, and rounded at the end; those of bytes are
        in int32. Kernels of bytes are stored by columns, as Tensor Cores load them (`byte_matmul`).
        """
        _, _, kh, kw, i, o = dims_of(packed)
        kernel, layout = self._reshaped(packed, [kh, kw, i, o]), "HWIO"
        if dtype_of(x) in BYTES and int(i) > 1:
            layout = "OIHW" if attributes["data_layout"] == "NCHW" else "OHWI"
            kernel = self._permuted(kernel, ["HWIO".index(axis) for axis in layout])
        self.convolutions += 1
        out = self._builder.emit(
            relax.op.nn.conv2d(
                x,
                kernel,
                **attributes,
                kernel_layout=layout,
                out_layout="NHWC",
                out_dtype="int32" if dtype_of(x) in BYTES else "float32",
            )
        )
        if dtype_of(out) != dtype:
            out = self._builder.emit(relax.op.astype(out, dtype))
        n, h, w, c = dims_of(out)
        return relax.op.reshape(out, [n, 1, h, w, c])

    def _reshaped(self, value: relax.Expr, shape: list[tvm.tirx.Expr]) -> relax.Expr:
        """Return a constant in another shape, or a view of anything else."""
        if isinstance(value, tvm.ir.GenericConst):
            return constant_from(array_of(value).reshape([int(d) for d in shape]))
        return self._builder.emit(relax.op.reshape(value, shape))

    def _permuted(self, value: relax.Expr, axes: list[int]) -> relax.Expr:
        """Return a constant with its axes in another order, or a transpose of anything else."""
        if isinstance(value, tvm.ir.GenericConst):
            return constant_from(array_of(value).transpose(axes))
        return self._builder.emit(relax.op.permute_dims(value, axes))

    def _block_of(self, data: relax.Expr, call: tvm.ir.Call) -> int:
        """Return the block in which a convolution that sums over channels reads its input."""
        held = self._versions.blocked.get(data)
        if held is not None and sums_over_blocks_of(held.block, call, self._lanes):
            return held.block
        return self._lanes.choose(int(dims_of(data)[1]))

    def _conv2d_transpose(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        """Compute all phases by one convolution, then put each phase's pixels in place."""
        data, weight = call.args
        phases = phases_of(call)
        assert phases is not None, "the plan leaves such a convolution in NCHW"
        y, x = phases
        _, channels, height, width = dims_of(call)
        total = y.stride * x.stride * int(channels)
        # Few channels: all phases of a pixel share one vector, rather than one lane each.
        together = total <= self._lanes.count or self._lanes.one_block
        in_block = self._block_of(data, call)
        out_block = total if together else block
        image = self._versions.of(data, in_block).value
        kernel = self._weights.phases(self._plain(weight), y, x, in_block, out_block)
        padding = [y.before, x.before, y.after, x.after]
        if self._lanes.one_block:
            rows, dtype = self._nhwc(image), dtype_of(call)
            result = self._convolve(rows, kernel, dtype, padding=padding, data_layout="NHWC")
        else:
            result = relax.op.nn.conv2d(
                image,
                kernel,
                padding=padding,
                data_layout=f"NCHW{in_block}c",
                kernel_layout=f"OIHW{in_block}i{out_block}o",
                out_layout=f"NCHW{out_block}c",
            )
            self.convolutions += 1
        conv = self._builder.emit(result)
        outer = int(channels) // block
        out = self._transforms.shuffle(conv, (y.stride, x.stride), outer, block, together)
        begin = [y.crop, x.crop]
        end = [y.crop + height, x.crop + width]
        equal = Analyzer().can_prove_equal
        have = dims_of(out)[2:4]
        if any(begin) or not all(equal(e, h) for e, h in zip(end, have, strict=True)):
            out = relax.op.strided_slice(out, [2, 3], begin, end)
        return out

    def _unary(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        x = self._versions.of(call.args[0], block)
        return self._pointwise(call, [x.value, *call.args[1:]], block)

    def _binary(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        channels = int(dims_of(call)[1])
        fill = 1.0 if call.op.name == "relax.divide" else 0.0
        args = [self._versions.operand(arg, block, channels, fill) for arg in call.args]
        return self._pointwise(call, args, block)

    def _pointwise(self, call: tvm.ir.Call, args: list[relax.Expr], block: int) -> relax.Expr:
        """Emit a pointwise operator, in the axes that the kernel before it has.

        A product's result has four axes in NHWC, a convolution's five. (A GPU's kernels have four.)
        """
        viewed = self._lanes.is_channels_last(block) and any(map(self._is_viewed, args))
        if not viewed and not self._lanes.one_block:
            return tvm.ir.Call(call.op, args, call.attrs)
        out = self._builder.emit(tvm.ir.Call(call.op, [self._nhwc(a) for a in args], call.attrs))
        n, h, w, c = dims_of(out)
        return relax.op.reshape(out, [n, 1, h, w, c])

    def _is_viewed(self, value: relax.Expr) -> bool:
        """Tell whether a tensor of five axes is a view of another."""
        made = self._builder.lookup_binding(value) if isinstance(value, relax.Var) else None
        return operator_name(made) == "reshape"

    def _nhwc(self, value: relax.Expr) -> relax.Expr:
        """Return an operand of five axes without that of the one block; others as they are."""
        shape = getattr(value.ty, "shape", None)
        if shape is None or len(shape.values) != 5:
            return value
        n, _, h, w, c = shape.values
        return self._reshaped(value, [n, h, w, c])

    def _pool(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        attrs = call.attrs
        pool = relax.op.nn.max_pool2d if "max" in call.op.name else relax.op.nn.avg_pool2d
        return pool(
            self._versions.of(call.args[0], block).value,
            pool_size=list(attrs.pool_size),
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
            layout=f"NCHW{block}c",
        )

    def _adaptive_pool(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        size = call.attrs.output_size
        size = None if size is None else [int(v) for v in size]
        x = self._versions.of(call.args[0], block)
        return relax.op.nn.adaptive_avg_pool2d(x.value, size, layout=f"NCHW{block}c")

    def _mean(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        return mean_of_pixels(self._versions.of(call.args[0], block))

    def _concat(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        parts = call.args[0].fields
        if self._lanes.one_block:
            own = [self._lanes.choose(int(dims_of(part)[1])) for part in parts]
            values = [self._versions.of(p, b).value for p, b in zip(parts, own, strict=True)]
            return relax.op.concat(values, axis=4)
        return relax.op.concat([self._versions.of(part, block).value for part in parts], axis=1)

    def _slice(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        place = slice_of_one_axis(call)
        assert place is not None, "the plan leaves such a slice in NCHW"
        axis, begin, end = place
        if axis == 1:  # whole blocks
            begin, end = begin // block, -(-end // block)
        x = self._versions.of(call.args[0], block)
        return relax.op.strided_slice(x.value, [axis], [begin], [end], [1])

    def _pad(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        widths = [int(w) for w in call.attrs.pad_width]
        x = self._versions.of(call.args[0], block)
        mode, value = str(call.attrs.pad_mode), float(call.attrs.pad_value)
        return relax.op.nn.pad(x.value, [*widths, 0, 0], mode, value)

    def _resize(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        attrs = call.attrs
        return relax.op.image.resize2d(
            self._versions.of(call.args[0], block).value,
            call.args[1],
            roi=[float(v) for v in attrs.roi],
            layout=f"NCHW{block}c",
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            extrapolation_value=float(attrs.extrapolation_value),
        )

    def _map(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        """Compute a kernel of the importer that treats all channels alike."""
        found = channelwise_map(call, self._mod)
        assert found is not None, "the plan leaves such a kernel in NCHW"
        image = self._versions.of(found.data, block).value
        if not self._lanes.one_block:
            return found.of(self._builder, image)
        # In four axes, as what lies around it: see `simplify_views`.
        call = found.of(self._builder, self._nhwc(image), channels_last=True)
        made = self._builder.emit(call)
        n, h, w, c = dims_of(made)
        return relax.op.reshape(made, [n, 1, h, w, c])

    def _permute(self, call: tvm.ir.Call, block: int) -> relax.Expr:
        """Return NHWC in blocks of channels."""
        return self._transforms.from_channels_last(self._plain(call.args[0]), block).value


def mean_of_pixels(x: Blocked) -> relax.Expr:
    """Return the mean of each channel as a tensor of one pixel in the same blocks."""
    return relax.op.nn.adaptive_avg_pool2d(x.value, [1, 1], layout=f"NCHW{x.block}c")
