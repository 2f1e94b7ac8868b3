"""Greatest common divisors and least common multiples."""

from __future__ import annotations

from tvm import relax

from frontends.computations.common_divisor import common_divisor
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten.gcd.default")
def gcd(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The greatest common divisor; that of 0 and 0 is 0."""
    return _elementwise(b, x, y, multiple=False)


@converter("aten.lcm.default")
def lcm(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The least common multiple; with 0 it is 0."""
    return _elementwise(b, x, y, multiple=True)


def _elementwise(b: GraphBuilder, x: Value, y: Value, *, multiple: bool) -> relax.Expr:
    shape = b.result_shape
    flat = [b.reshape(b.broadcast(t, shape), [product(shape)]) for t in b.operands(x, y)]
    return b.reshape(b.te(lambda p, q: common_divisor(p, q, multiple=multiple), *flat), shape)
