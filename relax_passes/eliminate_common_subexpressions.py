"""Compute what is computed twice once.

Calls are bucketed by operator, attributes and operands, then compared exactly. Constants count as
equal when their values are, bit for bit: comparing them by type and shape alone once merged two
convolutions that differed in their weights.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.constant_values import array_of
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option
from relax_passes.rewrite_functions import rewrite_functions

# Two calls of these give two results.
_DISTINCT = ("relax.random", "relax.call_", "relax.memory.", "relax.builtin.", "relax.print")
_SAMPLES = 64


@dataclass(frozen=True)
class MergeOptions:
    """Which constants are looked into."""

    max_constant_bytes: int | None = option(
        None,
        "constants above this many bytes are equal only if they are one object; none compares all",
        at_least=0,
    )


@graph_pass(
    name="eliminate_common_subexpressions",
    phase="canonicalize",
    options=MergeOptions,
    aliases=("cse",),
)
def eliminate_common_subexpressions(
    mod: tvm.IRModule, ctx: PassContext, options: MergeOptions
) -> tuple[tvm.IRModule, bool]:
    """Compute what is computed twice once; constants are equal when their values are."""
    rewriter = _Merge(mod, options)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("eliminate_common_subexpressions", f"removed {rewriter.count} repetitions")
    return rewriter.builder_.get(), True


class ConstantNumbers:
    """Numbers constants so that two have the same number exactly when their values are equal.

    One above `max_bytes` shares its number with none.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._by_identity: dict[tvm.ir.GenericConst, int] = {}
        self._by_sample: dict[Hashable, list[tuple[np.ndarray, int]]] = {}
        self._next = 0

    def number(self, constant: tvm.ir.GenericConst) -> int:
        """Return the number of a constant."""
        known = self._by_identity.get(constant)
        if known is None:
            known = self._by_identity[constant] = self._look_up(constant)
        return known

    def _look_up(self, constant: tvm.ir.GenericConst) -> int:
        if not isinstance(constant.value, tvm.runtime.Tensor):
            return self._new()
        if self._max_bytes is not None and _byte_count(constant) > self._max_bytes:
            return self._new()
        value = array_of(constant)
        bits = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        # A few bytes tell most constants apart, so that few are compared in full.
        step = max(1, bits.size // _SAMPLES)
        key = (str(constant.value.dtype), value.shape, bits[::step].tobytes())
        bucket = self._by_sample.setdefault(key, [])
        for other, number in bucket:
            if np.array_equal(bits, other):
                return number
        bucket.append((bits, self._new()))
        return bucket[-1][1]

    def _new(self) -> int:
        self._next += 1
        return self._next


def _byte_count(constant: tvm.ir.GenericConst) -> int:
    value = constant.value
    return math.prod(value.shape) * tvm.runtime.DataType(str(value.dtype)).itemsize


@mutator
class _Merge(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, options: MergeOptions) -> None:
        super().__init__(mod)
        self.count = 0
        self.constants = ConstantNumbers(options.max_constant_bytes)
        self.known: dict[Hashable, list[tuple[tvm.ir.Call, relax.Var]]] = {}

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        # Results of one block may be out of scope in the next.
        self.known.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        inner = isinstance(var, relax.DataflowVar)
        if not inner or not isinstance(value, tvm.ir.Call) or not isinstance(value.op, tvm.ir.Op):
            super().visit_var_binding_(binding)
            return
        if value.op.name.startswith(_DISTINCT):
            super().visit_var_binding_(binding)
            return
        call = self.visit_expr(value)
        bucket = self.known.setdefault(self._key(call), [])
        for other, result in bucket:
            if tvm_ffi.structural_equal(call.attrs, other.attrs):
                self.count += 1
                self.set_var_remap(var, result)
                return
        result = self.builder_.emit(call, var.name)
        self.set_var_remap(var, result)
        bucket.append((call, result))

    def _key(self, call: tvm.ir.Call) -> Hashable:
        attrs = 0 if call.attrs is None else tvm_ffi.structural_hash(call.attrs)
        return call.op.name, attrs, *(self._operand(arg) for arg in call.args)

    def _operand(self, arg: relax.Expr) -> Hashable:
        if isinstance(arg, tvm.ir.GenericConst):
            return "constant", self.constants.number(arg)
        if isinstance(arg, relax.Tuple):
            return "tuple", *(self._operand(field) for field in arg.fields)
        if isinstance(arg, relax.Var):
            return arg
        return "structure", tvm_ffi.structural_hash(arg), str(arg)
