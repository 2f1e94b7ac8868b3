"""Remove views, transposes and casts that change nothing, and merge those that follow each other.

reshape(x, shape of x) = x                 reshape(reshape(x, s), t) = reshape(x, t)
permute(x, identity) = x                   permute(permute(x, p), q) = permute(x, p[q])
permute that moves only axes of extent 1 = reshape
reshape(permute(x, p), s) = permute(reshape(x, t), q) where no axis of s mixes axes apart in x,
    as an operand of a product
reshape(sum(x), s) = sum(x), where s has the summed axes with extent 1, or not any more
astype(x, type of x) = x                   broadcast_to(x, shape of x) = x
"""

from __future__ import annotations

from collections import Counter

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of
from relax_passes.analysis.readers import count_readers
from relax_passes.canonicalize_bindings import canonicalize_bindings
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.layout.blocked import is_one
from relax_passes.layout.transforms import TO_CHANNELS_LAST
from relax_passes.lowering.rule import dtype_of, has_no_elements
from relax_passes.lowering.views import VIEWS
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.reduced_axes import REDUCTIONS, with_axes_turned
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from relax_passes.transpose_of_view import transpose_of_view

_PERMUTE = "relax.permute_dims"
_MATMUL = tvm.ir.Op.get("relax.matmul")


@graph_pass(name="simplify_views", phase="canonicalize")
def simplify_views(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Remove or merge reshapes, transposes, casts and broadcasts that change nothing."""
    # A `match_cast` to the type that was there would hide the view behind it.
    plain = canonicalize_bindings(mod)
    rewriter = _Simplify(plain)
    rewrite_functions(rewriter, plain, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("simplify_views", f"simplified {rewriter.count} views")
    cleaned = canonicalize_bindings(rewriter.builder_.get())
    return remove_dead_bindings(cleaned), True


@mutator
class _Simplify(CallRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._readers: Counter[relax.Var] = Counter()
        self._multiplied: set[relax.Var] = set()
        self._bound: relax.Var | None = None

    def read(self, func: relax.Function) -> None:
        """Look at a function whose views are to be simplified."""
        self._readers = count_readers(func)
        self._multiplied.clear()
        tvm_ffi.structural_walk(func.body, (tvm.ir.Call, self._note_product), order="pre")

    def _note_product(self, call: tvm.ir.Call) -> None:
        if call.op == _MATMUL:
            self._multiplied.update(arg for arg in call.args if isinstance(arg, relax.Var))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Visit a binding, and remember whose value is looked at."""
        self._bound = binding.var
        super().visit_var_binding_(binding)

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if not isinstance(call.op, tvm.ir.Op):
            return None
        name = call.op.name
        if name in VIEWS:
            return self._view(call)
        if name == _PERMUTE:
            return self._permute(call)
        if name == "relax.astype" and dtype_of(call) == dtype_of(call.args[0]) != "":
            return call.args[0]
        if name == "relax.broadcast_to" and _same_shape(call, call.args[0]):
            return call.args[0]
        return None

    def _root(self, value: relax.Expr) -> relax.Expr:
        """Return the variable that `value` is another name of."""
        while isinstance(value, relax.Var):
            source = self.lookup_binding(value)
            if not isinstance(source, relax.Var):
                return value
            value = source
        return value

    def _producer(self, value: relax.Expr) -> tvm.ir.Call | None:
        producer = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        if isinstance(producer, tvm.ir.Call) and isinstance(producer.op, tvm.ir.Op):
            return producer
        return None

    def _view(self, call: tvm.ir.Call) -> relax.Expr | None:
        source = self._root(call.args[0])
        if _same_shape(call, source):
            return source
        inner = self._producer(source)
        if inner is None or _shape(call) is None or has_no_elements(call):
            return None
        if inner.op.name == _PERMUTE:
            alone = self._readers[source] == 1 and self._bound in self._multiplied
            return self._view_of_permute(inner, call) if alone else None
        if inner.op.name in REDUCTIONS and self._readers[source] == 1:
            return with_axes_turned(inner, _shape(call) or ())
        return self._reshape(source, call) if inner.op.name in VIEWS else None

    def _view_of_permute(self, permute: tvm.ir.Call, view: tvm.ir.Call) -> relax.Expr | None:
        """Return a view of a transpose as a transpose of a view, None where it is none."""
        shape, wanted = _shape(permute.args[0]), _shape(view)
        if shape is None or wanted is None:
            return None
        if axes_of(permute) == TO_CHANNELS_LAST and len(wanted) == 3:
            return None  # tokens of an image, which `assign_layout` may hold as NHWC
        found = transpose_of_view(shape, axes_of(permute), wanted)
        if found is None:
            return None
        seen = self.builder_.normalize(
            relax.op.reshape(permute.args[0], relax.ShapeExpr(found.shape))
        )
        shorter = self._view(seen)
        seen = seen if shorter is None else shorter
        source = seen if isinstance(seen, relax.Var) else self.builder_.emit(seen)
        moved = self.builder_.normalize(relax.op.permute_dims(source, found.order))
        merged = self._permute(moved)
        return moved if merged is None else merged

    def _reshape(self, source: relax.Expr, like: tvm.ir.Call) -> relax.Expr:
        """Return `source` viewed in the shape of `like`, without the views between."""
        while True:
            if _same_shape(like, source):
                return source
            inner = self._producer(source)
            if inner is None or inner.op.name not in VIEWS:
                return relax.op.reshape(source, like.ty.shape)
            source = self._root(inner.args[0])

    def _permute(self, call: tvm.ir.Call) -> relax.Expr | None:
        source = self._root(call.args[0])
        order = axes_of(call)
        inner = self._producer(source)
        merged = False
        if inner is not None and inner.op.name == _PERMUTE:
            merged = True
            first = axes_of(inner)
            source, order = self._root(inner.args[0]), [first[axis] for axis in order]
        if order == sorted(order):
            return source
        shape = _shape(source)
        if shape is not None and _shape(call) is not None and not has_no_elements(call):
            moved = [axis for axis in order if not is_one(shape[axis])]
            if moved == sorted(moved):
                return self._reshape(source, call)
        return relax.op.permute_dims(source, order) if merged else None


def _shape(value: relax.Expr) -> list[tvm.tirx.Expr] | None:
    shape = getattr(value.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def _same_shape(a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether both have the same shape, symbolic dimensions included."""
    first, second = _shape(a), _shape(b)
    if first is None or second is None or len(first) != len(second):
        return False
    return all(tvm_ffi.structural_equal(x, y) for x, y in zip(first, second, strict=True))
