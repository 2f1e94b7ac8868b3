"""Apply a table of rules until none fires: bottom-up sweeps over the bindings of each block."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.algebra.bindings import Bindings, operands, same_type
from relax_passes.algebra.match import Match
from relax_passes.algebra.operator_cost import Cost, UnknownCost, element_kind, operator_cost
from relax_passes.algebra.pattern import Operator, may_match, operand_matches, parse
from relax_passes.algebra.rule import Declined, Rule
from relax_passes.analysis.readers import count_live_readers, count_readers

# Each firing lowers the cost, so sweeps end; these bounds keep their number independent of it.
_SWEEPS = 12
_FIRINGS_PER_BINDING = 16


class Rewriter:
    """Applies rules to the functions of a module.

    Args:
        rules: The table, in the order in which rules of one operator are tried.
        strict: Whether only rules that keep every bit may fire.
        debug: Whether to count the cost of the whole function around every sweep.
    """

    def __init__(self, rules: Iterable[Rule], *, strict: bool = False, debug: bool = False) -> None:
        self.strict = strict
        self.debug = debug
        self.fired: Counter[str] = Counter()
        self.saved = Cost()
        self.declined: dict[tuple[str, str, str], None] = {}  # (rule, subject, reason), in order
        self._by_root: dict[str, list[tuple[Rule, Operator]]] = defaultdict(list)
        for rule in rules:
            node = parse(rule.left)
            assert isinstance(node, Operator), f"rule {rule.name} has no operator at its root"
            self._by_root[node.name].append((rule, node))
        self._scope = Bindings(Counter())
        self._renamed: dict[relax.Var, relax.Expr] = {}
        self._aliases: list[relax.Var] = []  # names that leave the block at hand, renamed within it
        self._budget = 0

    def rewrite(self, func: relax.Function) -> relax.Function:
        """Return the function with all rules applied, the same one where none fires."""
        self._budget = _FIRINGS_PER_BINDING * (len(count_readers(func)) + 4)
        for _ in range(_SWEEPS):
            before, fired = func, sum(self.fired.values())
            func = self._sweep(func)
            if sum(self.fired.values()) == fired:
                return before
        self.declined[("all", "the function", "the budget of rewrites is spent")] = None
        return func

    def _sweep(self, func: relax.Function) -> relax.Function:
        # What an earlier sweep, or a pass before, left unread must not keep a rule from firing.
        self._scope = Bindings(count_live_readers(func))
        self._renamed = {}
        saved = self.saved.total
        body = self._sequence(func.body)
        new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        if self.debug:
            fall = _live_cost(func) - _live_cost(new)
            assert fall >= self.saved.total - saved, "a rule does not save what it claims"
        return new

    def _sequence(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        outer = self._scope.definitions
        blocks = []
        for block in seq.blocks:
            # Variables of another block may be out of scope here.
            self._scope.definitions = {}
            kept: list[relax.Binding] = []
            inner = isinstance(block, relax.DataflowBlock)
            for binding in block.bindings:
                self._scope.inner = inner
                # What leaves a dataflow block or is the result keeps its name.
                named = binding.var.same_as(seq.body) or (
                    inner and not isinstance(binding.var, relax.DataflowVar)
                )
                kept += self._binding(binding, named)
            blocks.append(type(block)(kept))
            for alias in self._aliases:
                del self._renamed[alias]
            self._aliases = []
        self._scope.definitions = outer
        return relax.SeqExpr(blocks, self._rename(seq.body))

    def _binding(self, binding: relax.Binding, named: bool) -> list[relax.Binding]:
        if isinstance(binding, relax.MatchCast):
            return [relax.MatchCast(binding.var, self._rename(binding.value), binding.ty)]
        value = binding.value
        if isinstance(value, relax.If):
            branches = (self._sequence(value.true_branch), self._sequence(value.false_branch))
            value = relax.If(self._rename(value.cond), *branches)
            return [relax.VarBinding(binding.var, value)]
        return self._simplify(binding.var, value, named)

    def _simplify(self, target: relax.Var, value: relax.Expr, named: bool) -> list[relax.Binding]:
        """Return the bindings that take the place of `target = value`."""
        kept: list[relax.Binding] = []
        pending = [(target, value)]
        while pending:
            var, value = pending.pop()
            value = self._rename(value)
            if not self._scope.readers[var]:
                kept.append(relax.VarBinding(var, value))  # dead: what it reads is not counted
                continue
            value = self._element(value)
            leaves = named and var.same_as(target)
            if self._is_name(value) and (isinstance(value, relax.Var) or not leaves):
                # Both will be one variable, with the readers of either.
                self._scope.readers[value] += self._scope.readers[var] - 1
                self._renamed[var] = value
                if leaves:
                    self._aliases.append(var)
                    kept.append(relax.VarBinding(var, value))
                continue
            match = self._first_match(var, value) if self._budget else None
            if match is None:
                self._scope.definitions[var] = value
                kept.append(relax.VarBinding(var, value))
                continue
            emitted, result = match
            self._budget -= 1
            for new in (*emitted.values(), result):
                self._scope.retain(new)
            self._scope.release(value)
            pending.append((var, result))
            pending += reversed(emitted.items())
        return kept

    @staticmethod
    def _is_name(value: relax.Expr) -> bool:
        return isinstance(value, relax.Var) or Bindings.is_constant(value)

    def _element(self, value: relax.Expr) -> relax.Expr:
        """Return an element of a tuple that is known."""
        if isinstance(value, relax.TupleGetItem):
            made = self._scope.definition(value.tuple_value)
            if isinstance(made, relax.Tuple):
                part = made.fields[value.index]
                self._scope.retain(part)
                self._scope.release(value)
                return part
        return value

    def _first_match(
        self, var: relax.Var, root: relax.Expr
    ) -> tuple[dict[relax.Var, tvm.ir.Call], relax.Expr] | None:
        """Return the new bindings and the new value of `var` by the first rule that pays."""
        if not isinstance(root, tvm.ir.Call) or not isinstance(root.op, tvm.ir.Op):
            return None
        candidates = self._by_root.get(self._scope.name_of(root))
        if not candidates:
            return None
        kind = element_kind(root)
        operand_kinds = [self._scope.kind_of(arg) for arg in self._scope.args_of(root)]
        for rule, node in candidates:
            if root.ty is None or (
                kind not in rule.kinds and isinstance(root.ty, relax.TensorType)
            ):
                continue
            if self.strict and not rule.keeps_ieee(kind):
                continue
            if not may_match(node, operand_kinds):
                continue
            for found in operand_matches(node, root, self._scope, {}):
                try:
                    result = self._apply(rule, Match(var, root, found, self._scope))
                except (Declined, UnknownCost) as fault:
                    self._decline(rule, var, str(fault))
                    continue
                if result is not None:
                    self.fired[rule.name] += 1
                    return result
        return None

    def _apply(
        self, rule: Rule, match: Match
    ) -> tuple[dict[relax.Var, tvm.ir.Call], relax.Expr] | None:
        reason = rule.check(match) if rule.check else None
        if reason is not None:
            raise Declined(reason)
        new = rule.rewrite(match) if rule.rewrite else match.build(parse(rule.right))
        if not same_type(new.ty, match.root.ty):
            raise Declined(f"the result would be of type {new.ty}" if not rule.search else "")
        removed, stays = match.removed(new)
        added = match.added(new)
        if not added < removed:
            if stays is not None:
                raise Declined(f"{stays.name} has another reader" if not rule.search else "")
            raise Declined("" if rule.search else "it saves neither FLOPs nor bytes here")
        self.saved += Cost(
            removed.flops - added.flops, removed.bytes - added.bytes, removed.calls - added.calls
        )
        emitted = match.emitted
        return emitted, emitted.pop(new) if new in emitted else new

    def _decline(self, rule: Rule, var: relax.Var, reason: str) -> None:
        if reason:
            self.declined.setdefault((rule.name, var.name, reason))

    def _rename(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Var):
            return self._renamed.get(value, value)
        if not self._renamed or not any(v in self._renamed for v in operands(value)):
            return value
        names = self._renamed
        new = tvm_ffi.structural_map(value, (relax.Var, lambda v: names.get(v, v)))
        return _BUILDER.normalize(new) if isinstance(new, tvm.ir.Call) else new


_BUILDER = relax.BlockBuilder()  # only infers types


def _live_cost(func: relax.Function) -> int:
    """Return the cost of what the result of `func` depends on."""
    readers = count_live_readers(func)
    total = 0
    pending = [func.body]
    while pending:
        for binding in (b for block in pending.pop().blocks for b in block.bindings):
            value = binding.value
            if isinstance(value, relax.If):
                pending += [value.true_branch, value.false_branch]
            elif readers[binding.var]:
                total += _cost_or_zero(value)
    return total


def _cost_or_zero(value: relax.Expr) -> int:
    try:
        return operator_cost(value).total
    except (UnknownCost, AttributeError):
        return 0
