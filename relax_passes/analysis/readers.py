"""Count how often each variable of a Relax function is read."""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax


def count_readers(func: relax.Function) -> Counter[relax.Var]:
    """Return how often each variable is read, nested branches and the results included."""
    counts: Counter[relax.Var] = Counter()
    pending: list[object] = [func.body]
    while pending:
        node = pending.pop()
        if isinstance(node, relax.Var):
            counts[node] += 1
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
    return counts


def readers_of(block: relax.BindingBlock) -> dict[relax.Var, list[relax.Binding]]:
    """Return which bindings of a block read each variable."""
    readers: dict[relax.Var, list[relax.Binding]] = {}
    for binding in block.bindings:
        value = getattr(binding, "value", None)
        for var in relax.analysis.free_vars(value) if value is not None else ():
            readers.setdefault(var, []).append(binding)
    return readers
