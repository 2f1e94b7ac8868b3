"""Assign the blocked layout NCHW[x]c to convolutions and to what lies between them.

One forward walk. Each value may exist in two versions, plain and blocked; a version is made when
an operator asks for it and then kept, so that transforms stand only at the graph's edges and
around operators that cannot work on blocks. Weights and per-channel constants are packed here,
at compile time.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from relax_passes.analysis.pointwise import BINARY, INFINITE_AT_ZERO, UNARY
from relax_passes.blocked_layout import (
    Blocked,
    choose_block,
    choose_even_block,
    dims_of,
    fill_up,
    has_channels,
    is_one,
    pack_constant,
)
from relax_passes.constant_values import array_of, constant_from
from relax_passes.emit_as import emit_as
from relax_passes.layout_transforms import LayoutTransforms
from relax_passes.lowering.rule import dtype_of, has_no_elements, is_float32, static_shape
from relax_passes.pack_weights import WeightPacking
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import rewrite_functions
from relax_passes.transposed_convolution import AxisPhases, axis_phases
from relax_passes.view_before_slice import slice_of_one_axis


@graph_pass(name="assign_layout", phase="layout")
def assign_layout(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Put convolutions and what lies between them into the blocked layout NCHW[x]c."""
    if ctx.machine.kind != "llvm":
        return mod, False
    walk = _Walk(mod, ctx)
    rewrite_functions(walk, mod)
    if not walk.convolutions:
        return mod, False
    ctx.log.metrics["layout_transforms"] = walk.transforms.count
    packed = walk.weights.at_run_time
    ctx.log.fire(
        "assign_layout",
        f"{walk.convolutions} convolutions in blocked layout, "
        f"{walk.transforms.count} layout transforms"
        + (f", {packed} weights packed in each run" if packed else ""),
    )
    return walk.builder_.get(), True


@mutator
class _Walk(PyExprMutator):
    """The forward walk; a rule returns the blocked result of a call, or None to leave it plain."""

    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.log = ctx.log
        self.lanes = ctx.machine.lanes("float32")
        # Zeros times infinity are NaN: what fills up a block may not meet what was infinite.
        self.fills_up = ctx.precision != "strict"
        self.transforms = LayoutTransforms(self.builder_)
        self.weights = WeightPacking(self.builder_)
        self.convolutions = 0
        self.name = ""  # of the value the current rule computes: dumps keep the graph's names
        # Versions of the values of the current dataflow block, by the old graph's variables.
        self.blocked: dict[relax.Var, Blocked] = {}
        self.only_blocked: set[relax.Var] = set()
        # Constants that are not kernels, by block, channels and what fills up the last block.
        self.packed: dict[tuple[tvm.ir.GenericConst, int, int, float], relax.Expr] = {}
        self.rules: dict[str, Callable[[tvm.ir.Call], Blocked | None]] = {
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
        }
        self.rules.update(dict.fromkeys(UNARY, self._unary))
        self.rules.update(dict.fromkeys(BINARY, self._binary))

    # The walk ------------------------------------------------------------------------------

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        # A version made in one block is out of scope in the next.
        self.blocked.clear()
        self.only_blocked.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call, var = binding.value, binding.var
        if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op):
            if self._is_channels_last(call):
                value = self.builder_.normalize(
                    self.transforms.channels_last(self.blocked[call.args[0]])
                )
                self._bind(var, value)
                return
            rule = self.rules.get(call.op.name)
            # A convolution of another type is asked too, for its reason to decline.
            if not is_float32(call) and call.op.name != "relax.nn.conv2d":
                rule = None
            if any(has_no_elements(x) for x in (call, *call.args) if is_float32(x)):
                rule = None
            self.name = var.name
            result = None if rule is None else rule(call)
            if result is not None:
                self.blocked[var] = result
                if isinstance(var, relax.DataflowVar):
                    self.only_blocked.add(var)
                else:
                    self._bind(var, self.transforms.unblock(result))
                return
        super().visit_var_binding_(binding)

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        """Let `value` stand for `var`, a result of the block if `var` is one."""
        if isinstance(var, relax.DataflowVar):
            self.set_var_remap(var, value)
        else:
            self.set_var_remap(var, emit_as(self.builder_, var, value))

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        if var in self.only_blocked:
            self.set_var_remap(var, self.transforms.unblock(self.blocked[var]))
            self.only_blocked.discard(var)
        return super().visit_dataflow_var_(var)

    def _emit(self, value: relax.Expr) -> relax.Var:
        """Bind the blocked result of the current rule under the name of the plain one."""
        return self.builder_.emit(value, self.name)

    # Operands ------------------------------------------------------------------------------

    def _has_blocked(self, value: relax.Expr) -> bool:
        return isinstance(value, relax.Var) and value in self.blocked

    def _as_blocked(self, value: relax.Expr, block: int) -> Blocked:
        """Return `value` with the given block, kept for the next reader."""
        if self._has_blocked(value):
            held = self.blocked[value]
            if held.block == block:
                return held
            return self.transforms.reblock(held, block)
        made = self.transforms.block(self.visit_expr(value), block)
        if isinstance(value, relax.Var):
            self.blocked[value] = made
        return made

    def _operand(self, value: relax.Expr, like: Blocked, fill: float = 0) -> relax.Expr | None:
        """Return an operand of a broadcasting operator in the layout of `like`.

        A constant's lanes past the last channel hold `fill`.
        """
        if isinstance(value, tvm.ir.GenericConst):
            return self._constant(value, like, fill)
        if self._has_blocked(value) and self.blocked[value].channels == like.channels:
            return self._as_blocked(value, like.block).value
        plain = getattr(value.ty, "shape", None)
        if not isinstance(plain, relax.ShapeExpr):
            return None
        dims = list(plain.values)
        if not dims:
            return self.visit_expr(value)
        if len(dims) < 3 or is_one(dims[-3]):
            # No channel axis, or one of extent 1: the block axis broadcasts.
            return self.builder_.emit(relax.op.reshape(self.visit_expr(value), [*dims, 1]))
        if not has_channels(value) or int(dims[1]) != like.channels:
            return None
        return self._as_blocked(value, like.block).value

    def _constant(
        self, value: tvm.ir.GenericConst, like: Blocked, fill: float
    ) -> relax.Expr | None:
        shape = static_shape(value)
        if shape is None or len(shape) > 4:
            return None
        key = (value, like.block, like.channels, fill)
        if key not in self.packed:
            array = array_of(value)
            if array.size == 1:
                self.packed[key] = relax.const(array.reshape(()))
            elif len(shape) >= 3 and shape[-3] not in (1, like.channels):
                return None
            else:
                self.packed[key] = constant_from(pack_constant(array, like.block, fill))
        return self.packed[key]

    # Rules ---------------------------------------------------------------------------------

    def _conv2d(self, call: tvm.ir.Call) -> Blocked | None:
        data, weight = call.args
        attrs = call.attrs
        plain = str(attrs.data_layout) == "NCHW" and str(attrs.kernel_layout) == "OIHW"
        if not plain or str(attrs.out_layout) != "NCHW":
            return None
        if static_shape(weight) is None or not has_channels(data):
            self.log.decline("assign_layout", "conv2d", "its channels or its kernel are symbolic")
            return None
        if not is_float32(data, weight):
            self.log.decline("assign_layout", "conv2d", f"its type is {dtype_of(weight)}")
            return None
        groups = int(attrs.groups)
        kernel = [int(d) for d in weight.ty.shape.values]
        if 0 in kernel:
            return None
        out_channels, per_group = kernel[:2]
        stored_groups, kernel_in = groups, 0
        if groups > 1 and per_group == 1 and out_channels == groups:
            in_block = self._block_of(data)
            out_block, kernel_in = in_block, 1
            stored_groups += fill_up(groups, in_block)
        elif groups > 1:
            # A block never straddles two groups.
            in_block = choose_even_block(per_group, self.lanes)
            out_block = choose_even_block(out_channels // groups, self.lanes)
        else:
            in_block = self._block_of(data)
            out_block = self._choose_block(out_channels)
        kernel_in = kernel_in or in_block
        x = self._as_blocked(data, in_block)
        out = self._emit(
            relax.op.nn.conv2d(
                x.value,
                self.weights.kernel(self.visit_expr(weight), kernel_in, out_block),
                strides=list(attrs.strides),
                padding=list(attrs.padding),
                dilation=list(attrs.dilation),
                groups=stored_groups,
                data_layout=f"NCHW{in_block}c",
                kernel_layout=f"OIHW{kernel_in}i{out_block}o",
                out_layout=f"NCHW{out_block}c",
            )
        )
        self.convolutions += 1
        return Blocked(out, out_block, out_channels)

    def _choose_block(self, channels: int) -> int:
        choose = choose_block if self.fills_up else choose_even_block
        return choose(channels, self.lanes)

    def _block_of(self, data: relax.Expr) -> int:
        """Return the block that a convolution's input has, or else is given."""
        if self._has_blocked(data):
            return self.blocked[data].block
        return self._choose_block(int(dims_of(data)[1]))

    def _conv2d_transpose(self, call: tvm.ir.Call) -> Blocked | None:
        """Compute all phases by one convolution, then put each phase's pixels in place."""
        data, weight = call.args
        reason = _transpose_obstacle(call)
        if reason is None:
            attrs = call.attrs
            kernel = [int(d) for d in weight.ty.shape.values[2:]]
            (sh, sw), (ph, pw) = map(int, attrs.strides), map(int, attrs.output_padding)
            top, left, bottom, right = map(int, attrs.padding)
            y = axis_phases(kernel[0], sh, top, bottom, ph)
            x = axis_phases(kernel[1], sw, left, right, pw)
            if y is not None and x is not None:
                return self._phases(data, weight, y, x, dims_of(call))
            reason = "its padding exceeds its kernel"
        self.log.decline("assign_layout", "conv2d_transpose", reason)
        return None

    def _phases(
        self,
        data: relax.Expr,
        weight: relax.Expr,
        y: AxisPhases,
        x: AxisPhases,
        out_dims: list[tvm.tirx.Expr],
    ) -> Blocked:
        n, channels, height, width = out_dims
        block = choose_even_block(int(channels), self.lanes)
        total = y.stride * x.stride * int(channels)
        # Few channels: all phases of a pixel share one vector, rather than one lane each.
        together = total <= self.lanes
        in_block = self._block_of(data)
        out_block = total if together else block
        packed = self.weights.phases(self.visit_expr(weight), y, x, in_block, out_block)
        conv = self.builder_.emit(
            relax.op.nn.conv2d(
                self._as_blocked(data, in_block).value,
                packed,
                padding=[y.before, x.before, y.after, x.after],
                data_layout=f"NCHW{in_block}c",
                kernel_layout=f"OIHW{in_block}i{out_block}o",
                out_layout=f"NCHW{out_block}c",
            )
        )
        self.convolutions += 1
        outer = int(channels) // block
        out = self.transforms.shuffle(conv, (y.stride, x.stride), outer, block, together)
        begin = [y.crop, x.crop]
        end = [y.crop + height, x.crop + width]
        equal = Analyzer().can_prove_equal
        have = dims_of(out)[2:4]
        if any(begin) or not all(equal(e, h) for e, h in zip(end, have, strict=True)):
            out = self.builder_.emit(relax.op.strided_slice(out, [2, 3], begin, end))
        return Blocked(out, block, int(channels))

    def _unary(self, call: tvm.ir.Call) -> Blocked | None:
        if not self._has_blocked(call.args[0]):
            return None
        x = self.blocked[call.args[0]]
        if x.is_filled_up and call.op.name in INFINITE_AT_ZERO:
            return None
        args = [x.value, *call.args[1:]]
        return self._like(x, tvm.ir.Call(call.op, args, call.attrs))

    def _binary(self, call: tvm.ir.Call) -> Blocked | None:
        held = [self.blocked[a] for a in call.args if self._has_blocked(a)]
        if not held or not has_channels(call):
            return None
        channels = int(dims_of(call)[1])
        held = [b for b in held if b.channels == channels]
        if not held:
            return None
        like = next((b for b in held if not b.is_pixel), held[0])
        divides = call.op.name == "relax.divide"
        by_constant = divides and isinstance(call.args[1], tvm.ir.GenericConst)
        if like.is_filled_up and call.op.name in INFINITE_AT_ZERO and not by_constant:
            return None
        args = []
        for arg in call.args:
            operand = self._operand(arg, like, fill=1 if divides else 0)
            if operand is None:
                return None
            args.append(operand)
        return self._like(like, tvm.ir.Call(call.op, args, call.attrs))

    def _like(self, x: Blocked, value: relax.Expr) -> Blocked:
        """Bind `value`, which has the channels of `x`."""
        return Blocked(self._emit(value), x.block, x.channels)

    def _pool(self, call: tvm.ir.Call) -> Blocked | None:
        attrs = call.attrs
        if not self._has_blocked(call.args[0]) or str(attrs.layout) != "NCHW":
            return None
        x = self.blocked[call.args[0]]
        pool = relax.op.nn.max_pool2d if "max" in call.op.name else relax.op.nn.avg_pool2d
        out = pool(
            x.value,
            pool_size=list(attrs.pool_size),
            strides=list(attrs.strides),
            padding=list(attrs.padding),
            dilation=list(attrs.dilation),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
            layout=f"NCHW{x.block}c",
        )
        return self._like(x, out)

    def _adaptive_pool(self, call: tvm.ir.Call) -> Blocked | None:
        if not self._has_blocked(call.args[0]) or str(call.attrs.layout) != "NCHW":
            return None
        x = self.blocked[call.args[0]]
        size = call.attrs.output_size
        size = None if size is None else [int(v) for v in size]
        out = relax.op.nn.adaptive_avg_pool2d(x.value, size, layout=f"NCHW{x.block}c")
        return self._like(x, out)

    def _mean(self, call: tvm.ir.Call) -> Blocked | None:
        (data,) = call.args
        axes = call.attrs.axis
        if not self._has_blocked(data) or axes is None or not call.attrs.keepdims:
            return None
        if sorted(int(a) % 4 for a in axes) != [2, 3]:
            return None
        x = self.blocked[data]
        out = relax.op.nn.adaptive_avg_pool2d(x.value, [1, 1], layout=f"NCHW{x.block}c")
        return self._like(x, out)

    def _concat(self, call: tvm.ir.Call) -> Blocked | None:
        parts = call.args[0]
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % 4
        if not isinstance(parts, relax.Tuple) or axis != 1:
            return None
        held = [self.blocked[p] for p in parts.fields if self._has_blocked(p)]
        # Blocks of one size only: a value that does not divide would straddle blocks.
        if len(held) * 2 <= len(parts.fields):
            return None
        block, channels = held[0].block, 0
        for part in parts.fields:
            # Only the last block of all may be filled up.
            if not has_channels(part) or channels % block != 0:
                return None
            if self._has_blocked(part) and self.blocked[part].block != block:
                return None
            if isinstance(part, tvm.ir.GenericConst):
                return None
            channels += int(dims_of(part)[1])
        if channels % block and not self.fills_up:
            return None
        values = [self._as_blocked(part, block).value for part in parts.fields]
        return Blocked(self._emit(relax.op.concat(values, axis=1)), block, channels)

    def _slice(self, call: tvm.ir.Call) -> Blocked | None:
        place = slice_of_one_axis(call)
        if place is None or not self._has_blocked(call.args[0]):
            return None
        axis, begin, end = place
        x = self.blocked[call.args[0]]
        channels = x.channels
        if axis == 1:  # whole blocks only
            if begin % x.block or (end % x.block and end != x.channels):
                return None
            channels = end - begin
            begin, end = begin // x.block, -(-end // x.block)
        out = relax.op.strided_slice(x.value, [axis], [begin], [end], [1])
        return Blocked(self._emit(out), x.block, channels)

    def _pad(self, call: tvm.ir.Call) -> Blocked | None:
        if not self._has_blocked(call.args[0]):
            return None
        widths = [int(w) for w in call.attrs.pad_width]
        if len(widths) != 8 or any(widths[2:4]):
            return None
        x = self.blocked[call.args[0]]
        out = relax.op.nn.pad(
            x.value, [*widths, 0, 0], str(call.attrs.pad_mode), float(call.attrs.pad_value)
        )
        return self._like(x, out)

    def _resize(self, call: tvm.ir.Call) -> Blocked | None:
        attrs = call.attrs
        if not self._has_blocked(call.args[0]) or str(attrs.layout) != "NCHW":
            return None
        if str(attrs.method) == "cubic":
            return None
        x = self.blocked[call.args[0]]
        out = relax.op.image.resize2d(
            x.value,
            call.args[1],
            roi=[float(v) for v in attrs.roi],
            layout=f"NCHW{x.block}c",
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            extrapolation_value=float(attrs.extrapolation_value),
        )
        return self._like(x, out)

    def _is_channels_last(self, call: tvm.ir.Call) -> bool:
        """Return whether `call` transposes a value that exists in blocks only to NHWC."""
        if call.op.name != "relax.permute_dims" or call.attrs.axes is None:
            return False
        axes = [int(a) % max(len(call.attrs.axes), 1) for a in call.attrs.axes]
        return axes == [0, 2, 3, 1] and call.args[0] in self.only_blocked


def _transpose_obstacle(call: tvm.ir.Call) -> str | None:
    """Return why a transposed convolution cannot be one ordinary convolution, None if it can."""
    data, weight = call.args
    attrs = call.attrs
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    if layouts != ("NCHW", "IOHW", "NCHW"):
        return "its layout is not NCHW"
    if static_shape(weight) is None or not has_channels(data):
        return "its channels or its kernel are symbolic"
    if not is_float32(data, weight) or not has_channels(call):
        return f"its type is {dtype_of(weight)}"
    if int(attrs.groups) != 1 or any(int(d) != 1 for d in attrs.dilation):
        return "it has groups or dilation"
    return "its kernel is empty" if 0 in [int(d) for d in weight.ty.shape.values] else None
