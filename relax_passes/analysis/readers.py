"""Count how often each variable of a Relax function is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import tvm
from tvm import relax


def count_readers(func: relax.Function) -> Counter[relax.Var]:
    """Return how often each variable is read, nested branches and the results included."""
    return Counter(_vars_of(func.body))


def _vars_of(root: relax.Expr) -> Iterator[relax.Var]:
    """Yield each variable that an expression reads, as often as it reads it."""
    pending: list[object] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, relax.Var):
            yield node
        elif isinstance(node, tvm.ir.Call):
            pending.extend(node.args)
        elif isinstance(node, relax.Tuple):
            pending.extend(node.fields)
        elif isinstance(node, relax.TupleGetItem):
            pending.append(node.tuple_value)
        elif isinstance(node, relax.SeqExpr):
            pending.append(node.body)
            pending.extend(b.value for block in node.blocks for b in block.bindings)
        elif isinstance(node, relax.If):
            pending.extend((node.cond, node.true_branch, node.false_branch))
        elif isinstance(node, relax.Function):
            pending.append(node.body)


def count_live_readers(func: relax.Function) -> Counter[relax.Var]:
    """Return how often each variable is read by what the function's results depend on.

    An operator that nothing reads, and the operands that only such operators read, count as not
    read. A `match_cast`, a branch and a call of a function or of an impure operator stay alive.
    """
    counts = count_readers(func)
    _release_dead(func.body, counts)
    return counts


def _release_dead(seq: relax.SeqExpr, counts: Counter[relax.Var]) -> None:
    """Take what dead operators read out of `counts`, from the last binding to the first."""
    for block in reversed(seq.blocks):
        for binding in reversed(block.bindings):
            value = binding.value
            if isinstance(value, relax.If):
                _release_dead(value.true_branch, counts)
                _release_dead(value.false_branch, counts)
            elif not counts[binding.var] and isinstance(binding, relax.VarBinding):
                if _is_pure(value):
                    counts.subtract(_vars_of(value))


def _is_pure(value: relax.Expr) -> bool:
    if not isinstance(value, tvm.ir.Call):
        return True  # a tuple, an element of one, another name
    return isinstance(value.op, tvm.ir.Op) and bool(value.op.get_attr("FPurity"))


def readers_of(block: relax.BindingBlock) -> dict[relax.Var, list[relax.Binding]]:
    """Return which bindings of a block read each variable."""
    readers: dict[relax.Var, list[relax.Binding]] = {}
    for binding in block.bindings:
        value = getattr(binding, "value", None)
        for var in relax.analysis.free_vars(value) if value is not None else ():
            readers.setdefault(var, []).append(binding)
    return readers
