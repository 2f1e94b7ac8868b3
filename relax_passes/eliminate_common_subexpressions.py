"""Share equal subexpressions: hash operator, attributes and operands, then compare exactly.

Constants are equal when their bytes are, never by shape alone: two convolutions that differ only in
their weights must stay two.
"""

from __future__ import annotations

import hashlib

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.replace_main import replace_main

NAME = "eliminate_common_subexpressions"
# Equal weights above this size are left apart: hashing them costs more than sharing saves.
MAX_CONSTANT_BYTES = 1 << 20


@graph_pass(name=NAME, phase="canonicalize")
def eliminate_common_subexpressions(
    mod: tvm.IRModule, ctx: PassContext
) -> tuple[tvm.IRModule, bool]:
    """Replace a binding by an earlier one of the same operator, attributes and operands."""
    main = mod["main"]
    shared = _Shared()
    blocks, dropped = [], 0
    for block in main.body.blocks:
        if not isinstance(block, relax.DataflowBlock):  # may have effects
            blocks.append(block)
            continue
        bindings = []
        for binding in block.bindings:
            kept = shared.visit(binding)
            dropped += kept is None
            if kept is not None:
                bindings.append(kept)
        blocks.append(relax.DataflowBlock(bindings))
    if not dropped:
        return mod, False
    updated = replace_main(mod, blocks, shared.rename(main.body.body))
    ctx.log.fire(NAME, f"{dropped} repeated expressions shared")
    return updated, True


class _Shared:
    """Expressions seen so far; one pass, a dictionary lookup per binding."""

    def __init__(self) -> None:
        self._seen: dict[tvm_ffi.StructuralKey, relax.Var] = {}
        self._renamed: dict[relax.Expr, relax.Expr] = {}
        self._constants: dict[tuple[object, ...], relax.Expr] = {}
        self._numbers: dict[relax.Expr, int] = {}

    def rename(self, expr: relax.Expr) -> relax.Expr:
        return tvm_ffi.structural_map(expr, (relax.Var, lambda v: self._renamed.get(v, v)))

    def visit(self, binding: relax.Binding) -> relax.Binding | None:
        """Return the binding with its operands renamed, None if an earlier one does the same."""
        if not isinstance(binding, relax.VarBinding):
            return relax.MatchCast(binding.var, self.rename(binding.value), binding.ty)
        value = self.rename(binding.value)
        key = self._key(value)
        if key is not None:
            earlier = self._seen.get(key)
            if earlier is not None and isinstance(binding.var, relax.DataflowVar):
                self._renamed[binding.var] = earlier
                return None
            self._seen.setdefault(key, binding.var)
        return relax.VarBinding(binding.var, value)

    def _key(self, value: relax.Expr) -> tvm_ffi.StructuralKey | None:
        if isinstance(value, relax.TupleGetItem):
            return tvm_ffi.StructuralKey([self._number(value.tuple_value), value.index])
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        if "random" in value.op.name or value.op.name.startswith("relax.call_"):
            return None
        operands = [self._operand(arg) for arg in value.args]
        attrs = value.attrs if value.attrs is not None else ""
        return tvm_ffi.StructuralKey([value.op.name, attrs, operands, value.ty])

    def _operand(self, arg: relax.Expr) -> object:
        """Describe an operand by identity (variables), by bytes (constants) or by structure."""
        if isinstance(arg, relax.Var):
            return self._number(arg)
        if isinstance(arg, tvm.ir.GenericConst) and isinstance(arg.value, tvm.runtime.Tensor):
            return self._number(self._same_constant(arg))
        if isinstance(arg, relax.Tuple):
            return ["tuple", *(self._operand(field) for field in arg.fields)]
        return arg

    def _number(self, expr: relax.Expr) -> int:
        return self._numbers.setdefault(expr, len(self._numbers))

    def _same_constant(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        array = constant.value.numpy()
        if array.nbytes > MAX_CONSTANT_BYTES:
            return constant
        digest = hashlib.sha256(array.tobytes()).digest()
        key = (str(constant.value.dtype), array.shape, digest)
        return self._constants.setdefault(key, constant)
