"""Compute element by element before a view, not after.

    f(reshape(a), y)  =  reshape(f(a, reshape(y)))

The kernel that makes `a` takes f in: a view between the two is no kernel, but keeps them apart.
The view goes on towards the results until it meets what is no operator of single elements, and is
free wherever it stands. Its other operands are viewed instead: what is stored, such as a constant,
a parameter or a residual, costs nothing to view; an operand that is being computed would itself be
cut from its kernel, unless it is an operator of one tensor and can be viewed before, or a reduction
that keeps its axes in the one shape and not in the other.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import dimensions, equal_shapes, operator_name
from relax_passes.analysis.pointwise import BINARY, UNARY
from relax_passes.analysis.readers import count_readers, readers_of
from relax_passes.analysis.viewed_shape import Size, viewed_shape
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.lowering.rule import has_no_elements, static_shape
from relax_passes.lowering.views import VIEWS
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.reduced_axes import REDUCTIONS, with_axes_turned
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

NAME = "sink_views"
_MAPS = frozenset({*UNARY, *BINARY, "relax.astype"})
# What takes an operator of single elements into its own kernel.
_TAKES_MAPS = _MAPS | {
    f"relax.{name}"
    for name in (
        "where matmul permute_dims strided_slice broadcast_to sum mean max min prod nn.softmax "
        "nn.log_softmax nn.layer_norm nn.rms_norm nn.conv1d nn.conv2d nn.conv3d nn.max_pool2d "
        "nn.avg_pool2d nn.adaptive_avg_pool2d"
    ).split()
}
# Operators of one tensor that an operand is looked through, to be viewed before them.
_DEPTH = 8


@graph_pass(name=NAME, phase="rewrite")
def sink_views(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Compute element by element before a view, so that the kernel before it takes that in."""
    rewriter = _Sink(mod, ctx.log)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"moved {rewriter.count} operators in front of views")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Sink(CallRewriter):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self._log = log
        self._only_mapped: set[relax.Var] = set()
        self._turned = False  # whether a reduction keeps its axes now, or no longer

    def read(self, func: relax.Function) -> None:
        """Look at a function whose views are to be moved."""
        self._readers = count_readers(func)
        self._only_mapped = {
            var
            for block in func.body.blocks
            for var, readers in readers_of(block).items()
            if isinstance(var, relax.DataflowVar) and all(_maps(r, var) for r in readers)
        }

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Visit a binding, and remember its name for the report."""
        self._bound = binding.var.name
        super().visit_var_binding_(binding)

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        shape = dimensions(call)
        if not _is_map(call) or shape is None or has_no_elements(call):
            return None
        for value in call.args:
            source = self._before_view(value)
            if source is None or not equal_shapes(dimensions(value), shape):
                continue
            view = dimensions(source) or []
            self._turned = False
            args = [self._seen(arg, shape, view, _DEPTH) for arg in call.args]
            # Others read the source, so that its kernel may not take this operator in; that of a
            # reduction does in any case, and may now join the source's.
            alone = self._readers[source] <= 1
            if all(arg is not None for arg in args) and (alone or self._turned):
                moved = self.builder_.emit(tvm.ir.Call(call.op, args, call.attrs))
                return relax.op.reshape(moved, relax.ShapeExpr(shape))
            if not alone:
                continue
            reason = "an operand is computed, or broadcast, in the shape after the view"
            self._log.decline(NAME, self._bound, reason)
        return None

    def _before_view(self, value: relax.Expr) -> relax.Expr | None:
        """Return the tensor that `value` is a view of, if a kernel that makes it takes maps in."""
        if value not in self._only_mapped or not _is_view(self.look_up(value)):
            return None
        source = self.look_up(value).args[0]
        if not isinstance(source, relax.Var):
            return None
        made = self.look_up(source)
        takes = f"relax.{operator_name(made)}" in _TAKES_MAPS
        return source if takes and dimensions(source) is not None else None

    def _seen(
        self, operand: relax.Expr, shape: list[Size], view: list[Size], depth: int
    ) -> relax.Expr | None:
        """Return an operand as it is in front of the view, None where that is not free."""
        if not isinstance(operand.ty, relax.TensorType):
            return operand
        mine = dimensions(operand)
        made = self.look_up(operand)
        if mine is None:
            return None
        if _is_view(made) and equal_shapes(dimensions(made.args[0]), view):
            return made.args[0]
        wanted = viewed_shape(mine, shape, view)
        if wanted is None:
            return None
        if equal_shapes(mine, wanted):
            return operand
        if isinstance(operand, tvm.ir.GenericConst):
            return _constant(operand, wanted)
        if _is_view(made) or self._is_stored(operand, made):
            return self.builder_.emit(relax.op.reshape(operand, relax.ShapeExpr(wanted)))
        if f"relax.{operator_name(made)}" in REDUCTIONS:
            turned = with_axes_turned(made, wanted)
            self._turned |= turned is not None
            return None if turned is None else self.builder_.emit(turned)
        if depth == 0 or f"relax.{operator_name(made)}" not in UNARY:
            return None
        inner = self._seen(made.args[0], shape, view, depth - 1)
        if inner is None:
            return None
        return self.builder_.emit(tvm.ir.Call(made.op, [inner, *made.args[1:]], made.attrs))

    def _is_stored(self, operand: relax.Expr, made: relax.Expr) -> bool:
        """Tell whether an operand is in memory anyway: it fuses with nothing, or others read it."""
        if isinstance(made, relax.Var):
            return True
        alone = self._readers[operand] <= 1
        return not (alone and f"relax.{operator_name(made)}" in _TAKES_MAPS)


def _is_map(value: relax.Expr) -> bool:
    return f"relax.{operator_name(value)}" in _MAPS


def _is_view(value: relax.Expr) -> bool:
    return f"relax.{operator_name(value)}" in VIEWS


def _maps(binding: relax.Binding, var: relax.Var) -> bool:
    """Tell whether a binding computes each element of a tensor like `var` from one of it."""
    value = getattr(binding, "value", None)
    return _is_map(value) and equal_shapes(dimensions(value), dimensions(var))


def _constant(value: relax.Expr, shape: list[Size]) -> relax.Expr | None:
    viewed = relax.op.reshape(value, relax.ShapeExpr(shape))
    sizes = static_shape(relax.BlockBuilder().normalize(viewed))
    return None if sizes is None else constant_from(array_of(value).reshape(sizes))
