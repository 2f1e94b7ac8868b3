"""Raise decomposed activations to one operator.

    x * 1/2 * (1 + erf(x / sqrt 2))                             -> gelu(x)
    x * 1/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))     -> gelu_tanh(x)
    x * sigmoid(x)                                              -> silu(x)

Exporters write these products in any order and group, so a product is flattened to its factors,
and the argument of erf or tanh is compared as a polynomial of x. Hendrycks, Gimpel: Gaussian Error
Linear Units, 2016.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import operator_name, scalar
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

Polynomial = dict[int, float]  # degree -> coefficient
_TOLERANCE = 1e-4
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
# Products of exported activations have at most this many levels.
_DEPTH = 6


@graph_pass(name="raise_gelu", phase="raise")
def raise_gelu(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Raise decomposed GELU (erf and tanh forms) and SiLU to one operator each."""
    rewriter = _Raise(mod)
    rewrite_functions(rewriter, mod)
    if not rewriter.raised:
        return mod, False
    ctx.log.fire("raise_gelu", "raised " + ", ".join(rewriter.raised))
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Raise(CallRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.raised: list[str] = []

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        name = _name(call)
        if name not in ("multiply", "divide"):
            return None
        result = self._silu(call) if name == "multiply" else None
        if result is None:
            result = self._gelu(call)
        if result is not None:
            self.raised.append(_name(result))
        return result

    def _silu(self, call: tvm.ir.Call) -> tvm.ir.Call | None:
        for x, gate in (call.args, list(call.args)[::-1]):
            definition = self.look_up(gate)
            if _name(definition) == "sigmoid" and definition.args[0].same_as(x):
                return relax.op.nn.silu(x)
        return None

    def _gelu(self, call: tvm.ir.Call) -> tvm.ir.Call | None:
        factors = self._factors(call, _DEPTH)
        if factors is None:
            return None
        scale, (a, b) = factors
        if not math.isclose(scale, 0.5, rel_tol=_TOLERANCE):
            return None
        for x, gate in ((a, b), (b, a)):
            kind = self._gate(gate, x)
            if kind is not None:
                return kind
        return None

    def _gate(self, gate: relax.Expr, x: relax.Expr) -> tvm.ir.Call | None:
        """Return the activation that `x * gate / 2` is, where `gate` is 1 + erf(..) or tanh(..)."""
        total = self.look_up(gate)
        if _name(total) != "add":
            return None
        for one, bent in (total.args, list(total.args)[::-1]):
            if scalar(one) != 1.0:
                continue
            bend = self.look_up(bent)
            kind = _name(bend)
            if kind == "erf":
                wanted = {1: math.sqrt(0.5)}
            elif kind == "tanh":
                wanted = {1: _ROOT_2_OVER_PI, 3: _ROOT_2_OVER_PI * 0.044715}
            else:
                continue
            if _close(self._polynomial(bend.args[0], x, _DEPTH), wanted):
                return relax.op.nn.gelu(x) if kind == "erf" else relax.op.nn.gelu_tanh(x)
        return None

    def _factors(
        self, value: relax.Expr, depth: int
    ) -> tuple[float, tuple[relax.Expr, relax.Expr]] | None:
        """Return a product as its constant and its two other factors."""
        scale = 1.0
        found: list[relax.Expr] = []
        pending = [(value, depth)]
        while pending:
            item, left = pending.pop()
            number = scalar(item)
            if number is not None:
                scale *= number
                continue
            definition = self.look_up(item)
            if _name(definition) == "multiply" and left:
                pending += [(arg, left - 1) for arg in definition.args]
            elif _name(definition) == "divide" and left and scalar(definition.args[1]):
                scale /= scalar(definition.args[1]) or math.inf
                pending.append((definition.args[0], left - 1))
            else:
                found.append(item)
            if len(found) > 2:
                return None
        return (scale, (found[0], found[1])) if len(found) == 2 else None

    def _polynomial(self, value: relax.Expr, x: relax.Expr, depth: int) -> Polynomial | None:
        """Return `value` as a polynomial of `x`, None if it is not one of degree 3 or less."""
        if value.same_as(x):
            return {1: 1.0}
        number = scalar(value)
        if number is not None:
            return {0: number}
        definition = self.look_up(value)
        name = _name(definition)
        if not depth or name not in ("add", "multiply", "divide", "power"):
            return None
        a = self._polynomial(definition.args[0], x, depth - 1)
        b = self._polynomial(definition.args[1], x, depth - 1)
        if a is None or b is None:
            return None
        if name == "add":
            return {d: a.get(d, 0.0) + b.get(d, 0.0) for d in {*a, *b}}
        if name == "multiply":
            return _product(a, b)
        if set(b) != {0}:
            return None
        if name == "divide":
            return None if b[0] == 0 else {d: c / b[0] for d, c in a.items()}
        if b[0] == 2.0:
            return _product(a, a)
        return _product(_product(a, a), a) if b[0] == 3.0 else None


def _product(a: Polynomial | None, b: Polynomial) -> Polynomial | None:
    if a is None or max(a) + max(b) > 3:
        return None
    result: Polynomial = {}
    for i, x in a.items():
        for j, y in b.items():
            result[i + j] = result.get(i + j, 0.0) + x * y
    return result


def _close(a: Polynomial | None, b: Polynomial) -> bool:
    if a is None:
        return False
    return all(
        math.isclose(a.get(d, 0.0), b.get(d, 0.0), rel_tol=_TOLERANCE, abs_tol=1e-9)
        for d in {*a, *b}
    )


def _name(value: relax.Expr) -> str:
    """Return the operator of a call without its prefixes, "" for anything else."""
    return operator_name(value).removeprefix("nn.")
