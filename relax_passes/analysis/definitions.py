"""What the variables of a Relax function stand for: the reading side of pattern matching."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import relax
from tvm.sym import Analyzer

from relax_passes.analysis.readers import count_readers


class Definitions:
    """The bindings of one function, branches included, and how often each variable is read."""

    def __init__(self, func: relax.Function) -> None:
        self.readers = count_readers(func)
        self._values: dict[relax.Var, relax.Expr] = {}
        pending: list[relax.Expr] = [func.body]
        while pending:
            node = pending.pop()
            if isinstance(node, relax.If):
                pending += [node.true_branch, node.false_branch]
            elif isinstance(node, relax.SeqExpr):
                pending.append(node.body)
                for block in node.blocks:
                    for binding in block.bindings:
                        if isinstance(binding, relax.VarBinding):
                            self._values[binding.var] = binding.value
                            pending.append(binding.value)

    def root(self, value: relax.Expr) -> relax.Expr:
        """Return the variable, constant or call that `value` is another name of."""
        while isinstance(value, relax.Var):
            source = self._values.get(value)
            if not isinstance(source, relax.Var):
                break
            value = source
        return value

    def call(self, value: relax.Expr, *names: str) -> tvm.ir.Call | None:
        """Return the call of an operator in `names` (of any, without names) that `value` is."""
        root = self.root(value)
        found = self._values.get(root) if isinstance(root, relax.Var) else root
        name = operator_name(found)
        return found if name and (not names or name in names) else None

    def same(self, a: relax.Expr, b: relax.Expr) -> bool:
        """Return whether two operands name one value."""
        return bool(self.root(a).same_as(self.root(b)))


def operator_name(value: object) -> str:
    """Return the operator of a call without the prefix "relax.", "" for anything else."""
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name).removeprefix("relax.")
    return ""


def scalar(value: relax.Expr) -> float | None:
    """Return the number in a constant of one element, None for anything else."""
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    if not isinstance(value.value, tvm.runtime.Tensor) or math.prod(value.value.shape) != 1:
        return None
    return float(value.value.numpy().reshape(()))


def dimensions(value: relax.Expr) -> list[tvm.ir.Expr] | None:
    """Return the shape of a tensor, symbolic sizes included, None where it is unknown."""
    shape = getattr(value.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def axes_of(call: tvm.ir.Call) -> list[int]:
    """Return the axes of an R.permute_dims, counted from 0."""
    rank = call.args[0].ty.ndim
    if call.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in call.attrs.axes]


def equal_sizes(a: object, b: object) -> bool:
    """Return whether two sizes are surely equal."""
    if isinstance(a, int | tvm.tirx.IntImm) and isinstance(b, int | tvm.tirx.IntImm):
        return int(a) == int(b)
    if isinstance(a, int) or isinstance(b, int):
        return False
    if tvm_ffi.structural_equal(a, b):
        return True
    return bool(Analyzer().can_prove_equal(a, b))


def equal_shapes(a: list[tvm.ir.Expr] | None, b: list[tvm.ir.Expr] | None) -> bool:
    """Return whether two shapes are known and surely equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(map(equal_sizes, a, b))
