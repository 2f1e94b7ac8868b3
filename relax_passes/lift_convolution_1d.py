"""Compute convolutions over one axis as convolutions over images of one row.

conv1d(x, w) = squeeze(conv2d(unsqueeze(x), unsqueeze(w)))

A tensor (N, C, W) and an image (N, C, 1, W) hold the same bytes, so the views cost nothing, and one
family of blocked kernels serves speech and vision. What lies between two convolutions works on
the image too: a view between them would end the blocked layout.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import axes_of
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

NAME = "lift_convolution_1d"


@graph_pass(name=NAME, phase="layout")
def lift_convolution_1d(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Compute convolutions over one axis as convolutions over images of one row."""
    if not (ctx.machine.kind == "llvm" or ctx.machine.is_gpu):
        return mod, False
    walk = _Lift(mod)
    rewrite_functions(walk, mod)
    if not walk.convolutions:
        return mod, False
    ctx.log.fire(NAME, f"{walk.convolutions} convolutions over one axis became rows of images")
    return remove_dead_bindings(walk.builder_.get()), True


@mutator
class _Lift(PyExprMutator):
    """A forward walk; a rule returns the image of a call's result, or None to leave it alone."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.convolutions = 0
        self.name = ""  # of the value the current rule computes: dumps keep the graph's names
        self.images: dict[relax.Var, relax.Var] = {}  # by the old graph's variables
        self.rules: dict[str, Callable[[tvm.ir.Call], relax.Expr | None]] = {
            "relax.nn.conv1d": self._convolution,
            "relax.nn.conv1d_transpose": self._convolution,
            "relax.nn.max_pool1d": self._pool,
            "relax.nn.avg_pool1d": self._pool,
            "relax.concat": self._concat,
            **dict.fromkeys(UNARY, self._unary),
            **dict.fromkeys(BINARY, self._binary),
        }

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        # An image made in one block is out of scope in the next.
        self.images.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call, var = binding.value, binding.var
        if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op):
            self.name = var.name
            plain = self._channels_last(call)
            if plain is None and (rule := self.rules.get(call.op.name)) is not None:
                image = rule(call)
                if image is not None:
                    self.images[var] = self.builder_.emit(image, self.name)
                    plain = relax.op.squeeze(self.images[var], [2])
            if plain is not None:
                self.set_var_remap(var, emit_as(self.builder_, var, plain, self.name))
                return
        super().visit_var_binding_(binding)

    def _has_image(self, value: relax.Expr) -> bool:
        return isinstance(value, relax.Var) and value in self.images

    def _image(self, value: relax.Expr) -> relax.Expr:
        """Return (N, C, W) as (N, C, 1, W), made once."""
        if self._has_image(value):
            return self.images[value]
        made = self._expand(value, 2)
        if isinstance(value, relax.Var):
            self.images[value] = made
        return made

    def _expand(self, value: relax.Expr, axis: int) -> relax.Expr:
        """Return `value` with a new axis; a constant stays one, to be packed at compile time."""
        if isinstance(value, tvm.ir.GenericConst):
            return constant_from(np.expand_dims(array_of(value), axis))
        return self.builder_.emit(relax.op.expand_dims(self.visit_expr(value), [axis]))

    # Rules ---------------------------------------------------------------------------------

    def _convolution(self, call: tvm.ir.Call) -> relax.Expr | None:
        attrs = call.attrs
        transposed = call.op.name.endswith("transpose")
        layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
        if layouts != ("NCW", "IOW" if transposed else "OIW", "NCW"):
            return None
        if not _has_rank(call.args[0], 3):
            return None
        self.convolutions += 1
        convolution = relax.op.nn.conv2d_transpose if transposed else relax.op.nn.conv2d
        output_padding = {"output_padding": [0, *attrs.output_padding]} if transposed else {}
        return convolution(
            self._image(call.args[0]),
            self._image(call.args[1]),
            strides=[1, *attrs.strides],
            padding=_beside(attrs.padding),
            dilation=[1, *attrs.dilation],
            groups=int(attrs.groups),
            out_dtype=None if attrs.out_dtype is None else str(attrs.out_dtype),
            **output_padding,
        )

    def _pool(self, call: tvm.ir.Call) -> relax.Expr | None:
        attrs = call.attrs
        if not self._has_image(call.args[0]) or str(attrs.layout) != "NCW":
            return None
        pool = relax.op.nn.max_pool2d if "max" in call.op.name else relax.op.nn.avg_pool2d
        return pool(
            self._image(call.args[0]),
            pool_size=[1, *attrs.pool_size],
            strides=[1, *attrs.strides],
            padding=_beside(attrs.padding),
            dilation=[1, *attrs.dilation],
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
        )

    def _concat(self, call: tvm.ir.Call) -> relax.Expr | None:
        parts, axis = call.args[0], call.attrs.axis
        if not isinstance(parts, relax.Tuple) or axis is None or int(axis) % 3 == 2:
            return None
        if not any(self._has_image(part) for part in parts.fields):
            return None
        return relax.op.concat([self._image(part) for part in parts.fields], axis=int(axis) % 3)

    def _unary(self, call: tvm.ir.Call) -> relax.Expr | None:
        if not self._has_image(call.args[0]):
            return None
        return tvm.ir.Call(call.op, [self._image(call.args[0]), *call.args[1:]], call.attrs)

    def _binary(self, call: tvm.ir.Call) -> relax.Expr | None:
        if not any(self._has_image(arg) for arg in call.args) or not _has_rank(call, 3):
            return None
        operands = [self._operand(arg) for arg in call.args]
        if any(operand is None for operand in operands):
            return None
        return tvm.ir.Call(call.op, operands, call.attrs)

    def _operand(self, value: relax.Expr) -> relax.Expr | None:
        """Return an operand that broadcasts against images."""
        if _has_rank(value, 3):
            return self._image(value)
        if _has_rank(value, 2):
            return self._expand(value, 1)
        if _has_rank(value, 1) or _has_rank(value, 0):
            return self.visit_expr(value)
        return None

    def _channels_last(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Transpose the image if `call` transposes to (N, W, C): blocks are unpacked once."""
        if call.op.name != "relax.permute_dims" or not self._has_image(call.args[0]):
            return None
        if axes_of(call) != [0, 2, 1]:
            return None
        image = relax.op.permute_dims(self.images[call.args[0]], [0, 2, 3, 1])
        return relax.op.squeeze(self.builder_.emit(image, self.name), [1])


def _beside(padding: list[int]) -> list[int]:
    """Return a border (left, right) of a row as (top, left, bottom, right) of an image."""
    left, right = (int(padding[0]), int(padding[-1]))
    return [0, left, 0, right]


def _has_rank(value: relax.Expr, rank: int) -> bool:
    return isinstance(value.ty, relax.TensorType) and value.ty.ndim == rank
