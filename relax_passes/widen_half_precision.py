"""Compute in float32 where a model computes in float16 or bfloat16, on processors without them.

op(x: half): half  =  astype(op(astype(x, float32)), half)

A processor converts half precision by the way and multiplies it only after converting, so that
float32 is both faster and more accurate: sums do not round after every term. What an operator
rounded to half for the next one that computes is handed on as it was, in float32, also where a
view, a transpose or a selection stands between them, and where the frontend wrote the rounding of
an operator that computes in float32 (a product that sums in float32, a softmax). Other operators
that only move elements stay as they are: they read and write half the bytes.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.canonicalize_bindings import canonicalize_bindings
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.lowering.rule import dtype_of
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import definition_of, rewrite_functions

_HALVES = ("float16", "bfloat16")
_MOVING = frozenset(
    "relax." + name
    for name in (
        "astype broadcast_to concat dynamic_strided_slice expand_dims flatten flip full full_like "
        "gather_elements gather_nd index_put index_tensor layout_transform nn.pad ones ones_like "
        "permute_dims repeat reshape scatter_nd slice_scatter split squeeze stack strided_slice "
        "take tile tril triu zeros zeros_like shape_of one_hot nn.dropout"
    ).split()
)
# Those that may stand between two operators that compute.
_VIEWS = frozenset(
    "relax." + name for name in ("expand_dims", "flatten", "permute_dims", "reshape", "squeeze")
)
# Calls of kernels and of the runtime, whose types are theirs to choose.
_OPAQUE = ("relax.call_", "relax.builtin.", "relax.memory.", "relax.vm.", "relax.random.")


@graph_pass(name="widen_half_precision", phase="canonicalize")
def widen_half_precision(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Compute in float32 what a model for a processor computes in float16 or bfloat16."""
    if ctx.machine.kind != "llvm":
        return mod, False
    rewriter = _Widen(mod)
    rewrite_functions(rewriter, mod)
    for name in sorted(rewriter.declined):
        ctx.log.decline("widen_half_precision", name, "its result type is written in the operator")
    if not rewriter.count:
        return mod, False
    ctx.log.fire("widen_half_precision", f"computed {rewriter.count} operators in float32")
    cleaned = canonicalize_bindings(rewriter.builder_.get())
    return remove_dead_bindings(cleaned), True


@mutator
class _Widen(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.count = 0
        self.declined: set[str] = set()
        self._made: set[relax.Var] = set()  # float32 results that a cast of ours rounds
        self._constants: dict[tvm.ir.GenericConst, relax.Expr] = {}

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, tvm.ir.Op) or not _computes(call):
            return call
        if not any(_holds_half(arg) for arg in call.args):
            return call
        if call.op == _WHERE and not any(self._unrounded(arg) for arg in call.args[1:]):
            return call  # nothing to gain: it would read and write twice the bytes
        if str(getattr(call.attrs, "out_dtype", None) or "") in _HALVES:
            self.declined.add(call.op.name)
            return call
        self.count += 1
        widened = tvm.ir.Call(call.op, [self._wide(arg) for arg in call.args], call.attrs)
        result = self.builder_.emit(widened)
        if isinstance(call.ty, relax.TupleType):
            fields = [
                self._rounded(self.builder_.emit(relax.TupleGetItem(result, place)), field)
                for place, field in enumerate(call.ty.fields)
            ]
            return relax.Tuple(fields)
        return self._rounded(result, call.ty)

    def _rounded(self, value: relax.Var, wanted: tvm.ir.Type) -> relax.Expr:
        """Return `value` in the dtype that the operator gave."""
        dtype = str(getattr(wanted.dtype, "dtype", wanted.dtype))
        if dtype_of(value) == dtype:
            return value
        self._made.add(value)
        return self.builder_.emit(relax.op.astype(value, dtype))

    def _wide(self, value: relax.Expr) -> relax.Expr:
        """Return an operand in float32 if it is in half precision."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._wide(field) for field in value.fields])
        if not _is_half(value):
            return value
        if isinstance(value, tvm.ir.GenericConst):
            if value not in self._constants:
                self._constants[value] = constant_from(array_of(value).astype("float32"))
            return self._constants[value]
        before = self._before_rounding(value)
        return self.builder_.emit(relax.op.astype(value, "float32")) if before is None else before

    def _before_rounding(self, value: relax.Expr) -> relax.Expr | None:
        """Return the float32 value that was rounded to `value`, moved as `value` was since."""
        found = self._unrounded(value)
        if found is None:
            return None
        result, views = found
        for view in reversed(views):
            moved = tvm.ir.Call(view.op, [result, *view.args[1:]], view.attrs)
            result = self.builder_.emit(moved)
        return result

    def _unrounded(self, value: relax.Expr) -> tuple[relax.Var, list[tvm.ir.Call]] | None:
        """Return the float32 value that was rounded to `value`, and the views since, last first."""
        if not _is_half(value):
            return None
        views: list[tvm.ir.Call] = []
        made = definition_of(self, value)
        while isinstance(made, tvm.ir.Call) and getattr(made.op, "name", "") in _VIEWS:
            views.append(made)
            made = definition_of(self, made.args[0])
        if not isinstance(made, tvm.ir.Call) or made.op != _ASTYPE:
            return None
        result = made.args[0]
        if result in self._made or self._computed_from_half(result):
            return result, views
        return None

    def _computed_from_half(self, value: relax.Expr) -> bool:
        """Return whether a float32 value is what one operator makes of half-precision operands.

        Rounding such a value is part of the operator, as a frontend writes it for operators that
        half precision is too coarse for inside. A cast of other float32 values is the model's own.
        """
        made = definition_of(self, value)
        if dtype_of(value) != "float32" or not isinstance(made, tvm.ir.Call):
            return False
        if not isinstance(made.op, tvm.ir.Op) or not _computes(made):
            return False
        tensors = [arg for arg in made.args if isinstance(arg, relax.Var)]
        return bool(tensors) and all(arg in self._made or self._was_half(arg) for arg in tensors)

    def _was_half(self, value: relax.Expr) -> bool:
        """Return whether a value is in half precision or a cast of such a value."""
        made = definition_of(self, value)
        if isinstance(made, tvm.ir.Call) and made.op == _ASTYPE:
            value = made.args[0]
        return _is_half(value)


def _computes(call: tvm.ir.Call) -> bool:
    """Return whether an operator does arithmetic, rather than move elements or call a kernel."""
    name = call.op.name
    if name == "relax.scatter_elements":
        return str(call.attrs.reduction) != "update"
    return name.startswith("relax.") and name not in _MOVING and not name.startswith(_OPAQUE)


def _is_half(value: relax.Expr) -> bool:
    return isinstance(getattr(value, "ty", None), relax.TensorType) and dtype_of(value) in _HALVES


def _holds_half(value: relax.Expr) -> bool:
    if isinstance(value, relax.Tuple):
        return any(_is_half(field) for field in value.fields)
    return _is_half(value)


_ASTYPE = tvm.ir.Op.get("relax.astype")
_WHERE = tvm.ir.Op.get("relax.where")
