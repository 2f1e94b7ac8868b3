"""What elements have to be for an operator to mean something, checked when the model runs."""

from __future__ import annotations

import functools

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder
from frontends.torch.source_line import source_line


def require_between(
    b: GraphBuilder, x: relax.Expr, message: str, least: float = 0, most: float | None = None
) -> None:
    """Let the run fail with torch's message and the user's line unless all of `x` lies between.

    A NaN does not, nor does infinity below a bound that is infinite.
    """
    bounds = [relax.op.greater_equal(x, relax.const(least, x.ty.dtype))]
    if most == float("inf"):
        bounds.append(relax.op.less(x, relax.const(most, x.ty.dtype)))
    elif most is not None:
        bounds.append(relax.op.less_equal(x, relax.const(most, x.ty.dtype)))
    fits = functools.reduce(
        lambda p, q: b.emit(relax.op.logical_and(p, q)), [b.emit(bound) for bound in bounds]
    )
    every = b.emit(relax.op.min(b.cast(fits, "int8")))
    b.requirements.add(every, message + source_line(b.node))
