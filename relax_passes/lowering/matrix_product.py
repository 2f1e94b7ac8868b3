"""Matrix products on a CPU: constant weights are packed at compile time, the rest in the kernel.

Weights that stay from call to call are packed by a kernel of their own, which `lift_preparation`
moves out of the call.

This runs on graph operators, before the general lowering, because it looks through the transposes
of its operands: a transposed constant is packed as it should be, and a swap of the last two axes
of a run-time operand becomes the kernel's `transpose` flag. Other transposes and slices of run-time
operands are read in place (`read_in_place.py`).
"""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.analysis.fixed_values import fixed_values
from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.read_in_place import read_in_place
from relax_passes.lowering.rule import is_float32, static_shape
from relax_passes.pass_base import PassContext
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions


def lower_matrix_products(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
    """Replace the float32 products of `mod` by calls of the CPU's own computations."""
    if ctx.machine.kind != "llvm":
        return mod
    lowering = _MatrixProducts(mod, ctx)
    rewrite_functions(lowering, mod, lowering.read)
    return lowering.builder_.get()


@mutator
class _MatrixProducts(CallRewriter):
    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.machine = ctx.machine
        # A weight that several products share is packed once.
        self.packed: dict[tuple[relax.Expr, bool], relax.Expr] = {}
        self.fixed: set[relax.Var] = set()

    def read(self, func: relax.Function) -> None:
        """Look at a function whose products are to be lowered."""
        self.fixed = fixed_values(func)

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if call.op != _MATMUL or not is_float32(call, *call.args):
            return None
        a, b = call.args
        if not isinstance(call.ty.shape, relax.ShapeExpr) or b.ty.ndim < 2:
            return None
        weight, swapped = self._strip_swap(b)
        if b.ty.ndim == 2 and self._stays(weight):
            return self._with_packed(a, weight, swapped)
        if a.ty.ndim < 2 or _is_empty(a) or _is_empty(b):
            return None
        return self._of_values(a, b, call.ty.shape[-1])

    def _stays(self, weight: relax.Expr) -> bool:
        """Tell whether a weight is constant, or static in size and the same from call to call."""
        if isinstance(weight, tvm.ir.GenericConst):
            return True
        return weight in self.fixed and static_shape(weight) is not None

    def _with_packed(self, a: relax.Expr, weight: relax.Expr, swapped: bool) -> relax.Expr | None:
        from tir_schedules.llvm.matmul import matmul_packed

        rows, cols = (int(d) for d in weight.ty.shape.values)
        depth, width = (cols, rows) if swapped else (rows, cols)
        if depth == 0 or width == 0 or _is_empty(a):
            return None
        key = (weight, swapped)
        if key not in self.packed:
            self.packed[key] = self._pack(weight, swapped)
        left = read_in_place(self.look_up, a)

        def product(x: te.Tensor, packed: te.Tensor) -> te.Tensor:
            return matmul_packed(left.of(x), packed, n=width)

        return self.builder_.call_te(
            product, left.source, self.packed[key], primfunc_name_hint="matmul"
        )

    def _pack(self, weight: relax.Expr, swapped: bool) -> relax.Expr:
        from tir_schedules.llvm.matmul import pack_weight, pack_weight_tensor

        if isinstance(weight, tvm.ir.GenericConst):
            values = array_of(weight)
            return constant_from(pack_weight(values.T if swapped else values, self.machine))
        pack = partial(pack_weight_tensor, swapped=swapped, machine=self.machine)
        return self.builder_.emit(
            self.builder_.call_te(pack, weight, primfunc_name_hint="pack_weight")
        )

    def _of_values(self, a: relax.Expr, b: relax.Expr, columns: tvm.tirx.Expr) -> relax.Expr:
        from tir_schedules.llvm.batch_matmul import batch_matmul
        from tir_schedules.llvm.matmul import panel_width

        a, transpose_a = self._strip_swap(a)
        b, transpose_b = self._strip_swap(b)
        left, right = (read_in_place(self.look_up, operand) for operand in (a, b))

        known = int(columns) if isinstance(columns, tvm.tirx.IntImm) else None
        panel = panel_width(known, self.machine)

        def product(x: te.Tensor, y: te.Tensor) -> te.Tensor:
            return batch_matmul(left.of(x), right.of(y), transpose_a, transpose_b, panel=panel)

        return self.builder_.call_te(
            product, left.source, right.source, primfunc_name_hint="batch_matmul"
        )

    def _strip_swap(self, value: relax.Expr) -> tuple[relax.Expr, bool]:
        """Return x and True where `value` is x with its last two axes swapped, else `value`.

        Where a transpose moves more axes, x is the transpose that moves those.
        """
        producer = self.look_up(value)
        if operator_name(producer) != "permute_dims":
            return value, False
        *lead, before, last = axes_of(producer)
        if before != producer.ty.ndim - 1:
            return value, False
        order = [*lead, last, before]
        source = producer.args[0]
        if order == sorted(order):
            return source, True
        return self.builder_.emit(relax.op.permute_dims(source, order)), True


def _is_empty(value: relax.Expr) -> bool:
    """Return whether a tensor has a dimension of extent 0."""
    return any(isinstance(d, tvm.tirx.IntImm) and int(d) == 0 for d in value.ty.shape.values)


_MATMUL = tvm.ir.Op.get("relax.matmul")
