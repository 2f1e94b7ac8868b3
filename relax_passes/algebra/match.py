"""A match of a rule: what its letters stand for, and how its replacement is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relax_passes.algebra.bindings import Bindings, operands
from relax_passes.algebra.operator_cost import Cost, operator_cost
from relax_passes.algebra.pattern import Leaf, Node, Number
from relax_passes.algebra.rule import Declined
from relax_passes.constant_evaluation import evaluate, tensor_operands
from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.rule import dtype_of, static_shape

_BUILDER = relax.BlockBuilder()  # only infers types: nothing is emitted into it
# A constant that a rule makes is at most this large, unless its operands were larger.
_MAX_CONSTANT_BYTES = 1 << 24


class Match:
    """One match in the module.

    Attributes:
        root: The call that is replaced.
        found: Letters to values, and the variables of matched inner calls to those calls.
        emitted: New bindings in order, by variable; they go in front of the root.
    """

    def __init__(
        self, var: relax.Var, root: tvm.ir.Call, found: dict[Any, Any], scope: Bindings
    ) -> None:
        self.var = var
        self.root = root
        self.scope = scope
        self.found = found
        self.emitted: dict[relax.Var, tvm.ir.Call] = {}

    def __getitem__(self, letter: str) -> relax.Expr:
        """Return what a letter stands for."""
        return self.found[letter]

    @property
    def inner(self) -> list[relax.Var]:
        """Return the variables of the matched inner calls, outer ones first."""
        return [key for key in self.found if isinstance(key, relax.Var)]

    def array(self, letter: str) -> np.ndarray:
        """Return the values of a constant."""
        return array_of(self.found[letter])

    def number(self, letter: str) -> float | None:
        """Return the number that all elements of a constant are, None if they differ."""
        return self.scope.uniform(self.found[letter])

    def call_named(self, name: str) -> tvm.ir.Call | None:
        """Return the first matched call of an operator, the root first."""
        calls = [self.root, *(self.found[var] for var in self.inner)]
        named = (c for c in calls if isinstance(c, tvm.ir.Call) and self.scope.name_of(c) == name)
        return next(named, None)

    def producer(self, value: relax.Expr, name: str) -> tvm.ir.Call | None:
        """Return the call of operator `name` that `value` stands for, as a part of the match."""
        call = self.scope.call_of(value)
        if call is None or self.scope.name_of(call) != name:
            return None
        if isinstance(value, relax.Var):
            self.found[value] = call
        return call

    def element_of(self, value: relax.Expr) -> tuple[relax.Expr, int] | None:
        """Return the tuple and the index that `value` is an element of, as a part of the match."""
        item = self.scope.definition(value)
        if not isinstance(item, relax.TupleGetItem):
            return None
        self.found[value] = item
        return item.tuple_value, int(item.index)

    def refuse_shared(self) -> None:
        """Decline before work on large constants if a matched inner value has another reader.

        Raises:
            Declined: If one has; the cost would say so afterwards.
        """
        for var in self.inner:
            if self.scope.readers[var] > 1:
                raise Declined(f"{var.name} has another reader")

    # Writing the replacement ---------------------------------------------------------------

    def emit(self, call: relax.Expr) -> relax.Expr:
        """Return a variable for a new call, or its value where its operands are constant.

        Raises:
            Declined: If the operator does not take these operands, or a constant gets out of hand.
        """
        try:
            call = _BUILDER.normalize(call)
        except (tvm.error.InternalError, ValueError, TypeError) as fault:
            raise Declined(str(fault).strip().splitlines()[-1]) from fault
        parts = tensor_operands(call)
        if parts and all(self.scope.is_constant(part) for part in parts):
            return self._folded(call, [array_of(part) for part in parts])
        kind = relax.DataflowVar if self.scope.inner else relax.Var
        var = kind(f"{self.var.name}_{self.scope.name_of(call)}", call.ty)
        self.emitted[var] = call
        return var

    def constant(self, value: Any, dtype: str | None = None) -> relax.Expr:
        """Return a constant of the root's element type."""
        return constant_from(np.asarray(value, dtype or dtype_of(self.root)))

    def build(self, node: Node) -> relax.Expr:
        """Return what the text of a replacement means."""
        if isinstance(node, Leaf):
            return self.found[node.name]
        if isinstance(node, Number):
            letters = [v for k, v in self.found.items() if isinstance(k, str)]
            return self.constant(node.value, dtype_of(letters[0]) if letters else None)
        assert node.operands is not None, "a replacement names its operands"
        args = [self.build(operand) for operand in node.operands]
        like = self.call_named(node.name)
        op = tvm.ir.Op.get(f"relax.{node.name}")
        if like is not None:  # attributes, and what is no tensor, stay
            more = list(like.args)[len(args) :]
            return self.emit(tvm.ir.Call(op, [*args, *more], like.attrs))
        shared = self.call_named(_SHARED.get(node.name, ""))
        return self.emit(tvm.ir.Call(op, args, None if shared is None else shared.attrs))

    def _folded(self, call: tvm.ir.Call, arrays: list[np.ndarray]) -> relax.Expr:
        value = _evaluate(self.scope.name_of(call), call, arrays)
        if value is None:
            raise Declined(f"its constants cannot be combined at compile time ({call.op.name})")
        if value.nbytes > max(_MAX_CONSTANT_BYTES, 2 * sum(a.nbytes for a in arrays)):
            raise Declined("the combined constant is too large")
        _check_range(value, arrays)
        return constant_from(value)

    # Cost ----------------------------------------------------------------------------------

    def removed(self, result: relax.Expr) -> tuple[Cost, relax.Var | None]:
        """Return what goes if the root becomes `result`, and an inner value that has to stay."""
        kept = {v for call in self.emitted.values() for v in operands(call)} | {result}
        dying: dict[relax.Var, relax.Expr] = {self.var: self.root}
        reads = _count(operands(self.root))
        cost, stays = operator_cost(self.root), None
        for var in _in_program_order(self.inner, self.scope)[::-1]:
            value = self.found[var]
            if var in kept or self.scope.readers[var] > reads.get(var, 0):
                stays = var if var not in kept else stays
                continue
            dying[var] = value
            cost += operator_cost(value)
            for operand, times in _count(operands(value)).items():
                reads[operand] = reads.get(operand, 0) + times
        return cost, stays

    def added(self, needed: relax.Expr) -> Cost:
        """Return what the new calls cost, without those that `needed` does not read."""
        self._drop_unread(needed)
        cost = Cost()
        for call in self.emitted.values():
            cost += operator_cost(call)
        return cost

    def _drop_unread(self, needed: relax.Expr) -> None:
        read = {needed, *operands(needed)}
        for var, call in reversed(list(self.emitted.items())):
            if var in read:
                read.update(operands(call))
            else:
                del self.emitted[var]


def _in_program_order(inner: list[relax.Var], scope: Bindings) -> list[relax.Var]:
    """Sort variables by where they are bound: a reader comes after what it reads."""
    wanted = set(inner)
    if len(inner) < 2:
        return inner
    ordered: list[relax.Var] = []
    seen: set[relax.Var] = set()

    def visit(var: relax.Var) -> None:
        if var in seen:
            return
        seen.add(var)
        for operand in operands(scope.definitions[var]):
            if operand in wanted:
                visit(operand)
        ordered.append(var)

    for var in inner:
        visit(var)
    return ordered


def _count(variables: Iterable[relax.Var]) -> dict[relax.Var, int]:
    counts: dict[relax.Var, int] = {}
    for var in variables:
        counts[var] = counts.get(var, 0) + 1
    return counts


# Operators whose attributes are those of another one on the left side.
_SHARED = {"nn.log_softmax": "nn.softmax", "max": "min", "min": "max", "sum": "prod"}


def _evaluate(name: str, call: tvm.ir.Call, arrays: list[np.ndarray]) -> np.ndarray | None:
    if name == "matmul" and arrays[0].dtype.kind == "f":
        product = np.matmul(*(a.astype("float64") for a in arrays)).astype(arrays[0].dtype)
        return product if product.shape == static_shape(call) else None
    if name == "strided_slice":
        return None
    return evaluate(call, arrays)


def _check_range(value: np.ndarray, arrays: list[np.ndarray]) -> None:
    if value.dtype.kind == "i" and np.any(value == np.iinfo(value.dtype).min):
        raise Declined("the combined constant is the least integer, which LLVM code cannot spell")
    if value.dtype.kind != "f" or not all(np.all(np.isfinite(a)) for a in arrays):
        return
    if not np.all(np.isfinite(value)):
        raise Declined("the combined constant overflows")
    tiny = np.finfo(value.dtype).tiny
    if np.any((np.abs(value) < tiny) & (value != 0)):
        raise Declined("the combined constant underflows")
