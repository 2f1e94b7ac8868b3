"""Compute at compile time what depends on constants only, and drop names of constants.

Common operators are evaluated with NumPy. All others of a module are built into one function that
runs once; a further round folds what depended on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.canonicalize_bindings import canonicalize_bindings
from relax_passes.constant_evaluation import evaluate, tensor_operands
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.lowering.rule import dtype_of, static_shape
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option

_IMPURE = ("relax.random", "relax.call_", "relax.memory.", "relax.builtin.", "relax.print")


@dataclass(frozen=True)
class FoldOptions:
    """What is worth its bytes in the compiled file."""

    max_grown_bytes: int = option(
        1 << 20, "largest constant made from smaller ones, in bytes", at_least=0
    )


@graph_pass(name="fold_constant", phase="canonicalize", options=FoldOptions)
def fold_constant(
    mod: tvm.IRModule, ctx: PassContext, options: FoldOptions
) -> tuple[tvm.IRModule, bool]:
    """Compute at compile time what depends on constants only."""
    total = 0
    folding = True
    while folding:
        mod, count, rest = _round(mod, {}, options)
        total += count
        results = _run(rest)
        folding = bool(results)
        if folding:
            # The variables of `rest` are those of the rewritten module: replace them there.
            mod, count, _ = _round(mod, results, options)
            total += count
    if not total:
        return mod, False
    ctx.log.fire("fold_constant", f"put {total} constants in place")
    cleaned = canonicalize_bindings(mod)
    return remove_dead_bindings(cleaned), True


def is_foldable(call: tvm.ir.Call, options: FoldOptions) -> bool:
    """Return whether a call is pure, has constant operands, and a result of reasonable size."""
    if not isinstance(call.op, tvm.ir.Op) or call.op.name.startswith(_IMPURE):
        return False
    operands = tensor_operands(call)
    if not operands or not isinstance(call.ty, relax.TensorType):
        return False
    for arg in call.args:
        if isinstance(arg, relax.Var | relax.GlobalVar):
            return False
        if isinstance(arg, relax.ShapeExpr) and not _is_static(arg):
            return False
    if not all(_is_tensor_constant(operand) for operand in operands):
        return False
    grown = _byte_count(call)
    return grown is not None and grown <= max(
        options.max_grown_bytes, sum(_byte_count(operand) or 0 for operand in operands)
    )


def _is_static(shape: relax.ShapeExpr) -> bool:
    return all(isinstance(d, tvm.tirx.IntImm) for d in shape.values)


def _is_tensor_constant(value: relax.Expr) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and isinstance(value.value, tvm.runtime.Tensor)


def _byte_count(value: relax.Expr) -> int | None:
    shape, dtype = static_shape(value), dtype_of(value)
    if shape is None or not dtype:
        return None
    return math.prod(shape) * max(1, tvm.runtime.DataType(dtype).bits // 8)


def _round(
    mod: tvm.IRModule, results: dict[relax.Var, tvm.ir.GenericConst], options: FoldOptions
) -> tuple[tvm.IRModule, int, list[tuple[relax.Var, tvm.ir.Call]]]:
    """Fold once; also return how much was folded, and the constant calls NumPy cannot do."""
    rewriter = _Fold(mod, results, options)
    rewritten = {}
    for name, func in mod.functions_items():
        if isinstance(func, relax.Function):
            rewritten[name] = rewriter.visit_expr(func)
    if not rewriter.count:
        rest = _constant_calls(mod, options)
        return mod, 0, rest
    for name, func in rewritten.items():
        rewriter.builder_.update_func(name, func)
    new = canonicalize_bindings(rewriter.builder_.get())
    return new, rewriter.count, _constant_calls(new, options)


def _constant_calls(mod: tvm.IRModule, options: FoldOptions) -> list[tuple[relax.Var, tvm.ir.Call]]:
    found = []
    for func in mod.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for block in func.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, tvm.ir.Call) and is_foldable(value, options):
                    found.append((binding.var, value))
    return found


def _run(calls: list[tuple[relax.Var, tvm.ir.Call]]) -> dict[relax.Var, tvm.ir.GenericConst]:
    """Build the calls into one function, run it, and return the results by variable."""
    if not calls:
        return {}
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            outputs = [builder.emit_output(call) for _, call in calls]
        builder.emit_func_output(relax.Tuple(outputs))
    try:
        executable = tvm.compile(builder.get(), target=tvm.target.Target({"kind": "llvm"}))
    except (tvm.error.InternalError, RuntimeError, ValueError, TypeError):
        return {}  # an operator without a CPU lowering stays for the target to compile
    values = relax.VirtualMachine(executable, tvm.cpu())["main"]()
    return {
        var: relax.const(value.numpy(), dtype_of(call))
        for (var, call), value in zip(calls, values, strict=True)
    }


@mutator
class _Fold(PyExprMutator):
    def __init__(
        self,
        mod: tvm.IRModule,
        results: dict[relax.Var, tvm.ir.GenericConst],
        options: FoldOptions,
    ) -> None:
        super().__init__(mod)
        self.options = options
        self.count = 0
        self.results = results
        self.known: dict[relax.Var, tvm.ir.GenericConst] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = binding.var
        result = self.results.get(var)
        if isinstance(var, relax.DataflowVar) and _is_tensor_constant(binding.value):
            result = binding.value  # a name hides it from the passes that look for constants
        elif result is None and isinstance(binding.value, tvm.ir.Call):
            call = self.visit_expr(binding.value)
            if isinstance(call, tvm.ir.Call) and is_foldable(call, self.options):
                result = self._evaluate(call)
        if result is None:
            super().visit_var_binding_(binding)
            return
        self.count += 1
        if isinstance(var, relax.DataflowVar):
            self.known[var] = result
        else:
            self.set_var_remap(var, emit_as(self.builder_, var, result))

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        known = self.known.get(var)
        return super().visit_dataflow_var_(var) if known is None else known

    def _evaluate(self, call: tvm.ir.Call) -> tvm.ir.GenericConst | None:
        arrays = [array_of(operand) for operand in tensor_operands(call)]
        value = evaluate(call, arrays)
        return None if value is None else constant_from(value)
