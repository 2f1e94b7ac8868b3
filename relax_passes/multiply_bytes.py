"""Multiply 8-bit integers as such on a GPU: zero points come off the sums, not off the operands.

Importers write products of quantized tensors as products of int16, less their zero points. With
A = X + s and B = Y + t, X and Y of 8 bits and shifts s and t that no step of the sum changes,

    A B = X Y + s [1 Y] + [X 1] t + K s t

X Y is what Tensor Cores multiply, exactly in int32. [1 Y], the sums of the columns, are constant
where Y is; [X 1], those of the rows, are only needed where the weight has a zero point that cannot
be taken off within 8 bits. A convolution's padding is zero in A, so that its [1 Y] is a sum over
the taps that lie in the image: of each pixel, where there is padding.

What wraps around does so in both forms alike. Jacob et al., "Quantization and Training of Neural
Networks for Efficient Integer-Arithmetic-Only Inference", 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax import op as R
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.byte_operands import ByteOperand, byte_operand, sums_of_taps
from relax_passes.analysis.definitions import operator_name
from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.blocked import dims_of
from relax_passes.lowering.rule import dtype_of, static_shape
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from tir_schedules.cuda.byte_product import byte_product

NAME = "multiply_bytes"
_LEAST_CAPABILITY = 61  # that has an instruction for products of bytes


@graph_pass(name=NAME, phase="layout")
def multiply_bytes(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Multiply 8-bit integers as such, where they were widened to take zero points off."""
    gpu = ctx.machine.gpu
    if ctx.machine.kind != "cuda" or gpu is None or gpu.capability < _LEAST_CAPABILITY:
        return mod, False
    rewriter = _ByteProducts(mod, ctx)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"{rewriter.count} products multiply 8-bit integers")
    return rewriter.builder_.get(), True


class _Declined(Exception):
    """Why a product stays as it is."""


@mutator
class _ByteProducts(CallRewriter):
    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.ctx = ctx

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name not in ("matmul", "nn.conv2d") or dtype_of(call) != "int32":
            return None
        if any(dtype_of(side) != "int16" for side in call.args):
            return None
        sides = [byte_operand(self.look_up, self._emit, side) for side in call.args]
        try:
            left, right = (side for side in sides if side is not None)
        except ValueError:
            self.ctx.log.decline(NAME, name, "an operand has more than 8 bits")
            return None
        try:
            return (self._product if name == "matmul" else self._convolution)(call, left, right)
        except _Declined as reason:
            self.ctx.log.decline(NAME, name, str(reason))
            return None

    def _product(self, call: tvm.ir.Call, left: ByteOperand, right: ByteOperand) -> relax.Expr:
        ranks = (left.value.ty.ndim, right.value.ty.ndim)
        if min(ranks) < 2 or (ranks[1] > 2 and ranks[0] != ranks[1]):
            raise _Declined("a side is a vector, or in fewer axes")
        if not left.is_kept(-1) or not right.is_kept(-2):
            raise _Declined("a zero point changes along the sum")
        by_columns = isinstance(right.value, tvm.ir.GenericConst) and ranks[1] == 2
        operand = constant_from(array_of(right.value).T) if by_columns else right.value
        terms = []
        if left.shift is not None:
            terms.append(self._times(left.shift, self._sums(right.value, -2)))
        if right.shift is not None:
            terms.append(self._times(right.shift, self._sums(left.value, -1)))
        if left.shift is not None and right.shift is not None:
            count = dims_of(left.value)[-1]
            if not isinstance(count, tvm.tirx.IntImm):
                raise _Declined("the length of the sum is symbolic")
            both = self._times(left.shift, right.shift)
            terms.append(self._times(both, relax.const(int(count), "int32")))
        product = self.builder_.call_te(
            byte_product, left.value, operand, by_columns, primfunc_name_hint="matmul"
        )
        return self._with_terms(product, terms)

    def _convolution(self, call: tvm.ir.Call, data: ByteOperand, weight: ByteOperand) -> relax.Expr:
        if weight.shift is not None:
            raise _Declined("the weight's zero point cannot be taken off within 8 bits")
        if data.shift is not None and data.shift.ty.ndim != 0:
            raise _Declined("the data have several zero points")
        total = R.nn.conv2d(
            data.value,
            weight.value,
            strides=list(call.attrs.strides),
            padding=list(call.attrs.padding),
            dilation=list(call.attrs.dilation),
            groups=int(call.attrs.groups),
            data_layout=call.attrs.data_layout,
            kernel_layout=call.attrs.kernel_layout,
            out_layout=call.attrs.out_layout,
            out_dtype="int32",
        )
        if data.shift is None:
            return total
        if not isinstance(weight.value, tvm.ir.GenericConst):
            raise _Declined("the data have a zero point, and the weight is not constant")
        size = static_shape(data.value)
        if size is None and any(int(p) for p in call.attrs.padding):
            raise _Declined("the data have a zero point, padding and a symbolic size")
        taps = sums_of_taps(call.attrs, array_of(weight.value), None if size is None else size[2:])
        return self._with_terms(total, [self._times(data.shift, constant_from(taps))])

    def _with_terms(self, product: relax.Expr, terms: Sequence[relax.Expr]) -> relax.Expr:
        """Return the product and what zero points add to it."""
        for term in terms:
            product = R.add(self._emit(product), term)
        return product

    def _sums(self, value: relax.Expr, axis: int) -> relax.Expr:
        """Return the sums of bytes along an axis, which is kept, in int32."""
        if isinstance(value, tvm.ir.GenericConst):
            return constant_from(array_of(value).astype("int32").sum(axis, "int32", keepdims=True))
        wide = self._emit(R.astype(value, "int32"))
        return self._emit(R.sum(wide, axis=axis, keepdims=True))

    def _times(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        if all(isinstance(side, tvm.ir.GenericConst) for side in (a, b)):
            return constant_from(array_of(a) * array_of(b))
        return self._emit(R.multiply(a, b))

    def _emit(self, value: relax.Expr) -> relax.Var:
        return self.builder_.emit(value)
