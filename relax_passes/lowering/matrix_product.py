"""Matrix products on a CPU: constant weights are packed at compile time, the rest in the kernel.

Weights that stay from call to call are packed by a kernel of their own, which `lift_preparation`
moves out of the call.

This runs on graph operators, before the general lowering, because it looks through the transposes
of its operands: a transposed constant is packed as it should be, and a swap of the last two axes
of a run-time operand becomes the kernel's `transpose` flag. Other transposes and slices of run-time
operands are read in place (`read_in_place.py`).
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax, te, topi
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.analysis.fixed_values import fixed_values
from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.read_in_place import InPlace, read_in_place
from relax_passes.lowering.rule import is_float32, static_shape
from relax_passes.pass_base import PassContext
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from tir_schedules.operand_view import sliced


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
        self.packed: dict[tuple[relax.Expr, bool, int], relax.Expr] = {}
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
        from tir_schedules.llvm.matmul import depth_parts

        rows, cols = (int(d) for d in weight.ty.shape.values)
        depth, width = (cols, rows) if swapped else (rows, cols)
        if depth == 0 or width == 0 or _is_empty(a):
            return None
        left = read_in_place(self.look_up, a)
        lead = static_shape(a)
        known = None if lead is None else prod(lead[:-1])
        total: relax.Expr | None = None
        for part in depth_parts(depth, width, known, self.machine):
            if total is not None:
                total = self.builder_.emit(total)
            total = self._part(left, self._packed(weight, swapped, part, depth), total, part, width)
        return total

    def _part(
        self, left: InPlace, packed: relax.Expr, so_far: relax.Expr | None, part: range, width: int
    ) -> relax.Expr:
        """Return the product of part of the depth, added to the sums so far."""
        from tir_schedules.llvm.matmul import matmul_packed

        def product(x: te.Tensor, packed: te.Tensor, *sums: te.Tensor) -> te.Tensor:
            view = left.of(x)
            axis = len(view.shape) - 1
            if len(part) < view.shape[axis]:
                view = sliced(view, axis, part.start, part.stop)
            made = matmul_packed(view, packed, n=width)
            return topi.add(made, sums[0]) if sums else made

        sums = [] if so_far is None else [so_far]
        return self.builder_.call_te(
            product, left.source, packed, *sums, primfunc_name_hint="matmul"
        )

    def _packed(self, weight: relax.Expr, swapped: bool, part: range, depth: int) -> relax.Expr:
        """Return part of a weight in panels; what several products share is packed once."""
        from tir_schedules.llvm.matmul import pack_weight, pack_weight_tensor

        key = (weight, swapped, part.start)
        if key in self.packed:
            return self.packed[key]
        if isinstance(weight, tvm.ir.GenericConst):
            values = array_of(weight)
            rows = (values.T if swapped else values)[part.start : part.stop]
            packed = constant_from(pack_weight(rows, self.machine))
        else:

            def pack(whole: te.Tensor) -> te.Tensor:
                axis = 1 if swapped else 0
                taken = whole if len(part) == depth else sliced(whole, axis, part.start, part.stop)
                return pack_weight_tensor(taken, swapped, self.machine)

            call = self.builder_.call_te(pack, weight, primfunc_name_hint="pack_weight")
            packed = self.builder_.emit(call)
        self.packed[key] = packed
        return packed

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
