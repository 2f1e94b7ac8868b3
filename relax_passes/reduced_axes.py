"""A reduction that keeps its axes at extent 1, or leaves them out: equal numbers, another shape."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relax_passes.analysis.definitions import dimensions, equal_shapes

REDUCTIONS = frozenset(f"relax.{name}" for name in ("sum", "mean", "max", "min", "prod"))


def with_axes_turned(reduction: tvm.ir.Call, shape: Sequence[tvm.ir.Expr]) -> relax.Expr | None:
    """Return `reduction` with its axes kept, or left out if they were kept.

    Args:
        reduction: A call of one of `REDUCTIONS`.
        shape: The sizes that the result is to have; None is returned where it has others.
    """
    name, kept = reduction.op.name.removeprefix("relax."), bool(reduction.attrs.keepdims)
    turned = getattr(relax.op, name)(reduction.args[0], reduction.attrs.axis, keepdims=not kept)
    turned = relax.BlockBuilder().normalize(turned)
    return turned if equal_shapes(dimensions(turned), list(shape)) else None
