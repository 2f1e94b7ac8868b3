"""Instances on which the algebraic rules are proved: their left sides on random tensors.

A rule whose left side is a plain expression needs no entry: its letters become tensors of random
shapes. Where shapes, values or attributes matter, `INSTANCES` (in `instances.py`) says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from relax_passes.algebra.pattern import Leaf, Node, Number, Operator, parse
from relax_passes.algebra.rule import Rule
from relax_passes.constant_values import constant_from

_WIDE = {"f": "float64", "i": "int64"}
_SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.5, -2.25, 3e38, -1.0, 0.5]


def dtypes(rule: Rule, kind: str) -> tuple[str, ...]:
    """Return the element types a rule is proved for: of every third rule also the wide one."""
    if kind == "b":
        return ("bool",)
    wide = (_WIDE[kind],) if len(rule.name) % 3 == 0 else ()
    return ({"f": "float32", "i": "int32"}[kind], *wide)


_NORMALIZER = relax.BlockBuilder()  # only infers types


@dataclass
class Proof:
    """A function `main` that a rule applies to, and inputs for it."""

    module: tvm.IRModule
    inputs: list[np.ndarray]


@dataclass
class Bench:
    """What an instance is built with: random numbers, a builder, and the parameters made so far."""

    rng: np.random.Generator
    dtype: str
    special: bool = False
    bindings: list[relax.Binding] = field(default_factory=list)
    params: list[relax.Var] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shape = tuple(int(n) for n in self.rng.integers(2, 6, 3))

    def values(self, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
        """Return random values: of order one, nonzero; with NaN, infinities and such if special."""
        dtype = dtype or self.dtype
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.startswith("int"):
            return self.rng.integers(-100, 100, shape).astype(dtype)
        if self.special:
            return self.rng.choice(np.array(_SPECIAL, dtype), shape)
        return self.rng.uniform(0.5, 2.0, shape).astype(dtype)

    def param(self, *shape: int, dtype: str | None = None) -> relax.Var:
        """Return a parameter that is given random values."""
        array = self.values(shape, dtype)
        var = relax.Var(f"p{len(self.params)}", relax.TensorType(shape, str(array.dtype)))
        self.params.append(var)
        self.inputs.append(array)
        return var

    def const(self, *shape: int) -> relax.Expr:
        """Return a constant of random ordinary values."""
        special, self.special = self.special, False
        array = self.values(shape)
        self.special = special
        return constant_from(array)

    def full(self, value: float, *shape: int) -> relax.Expr:
        """Return a constant of equal values."""
        return constant_from(np.full(shape, value, self.dtype))

    def emit(self, call: relax.Expr) -> relax.Var:
        """Bind a call."""
        call = _NORMALIZER.normalize(call)
        var = relax.DataflowVar(f"v{len(self.bindings)}", call.ty)
        self.bindings.append(relax.VarBinding(var, call))
        return var

    def finish(self, result: relax.Expr) -> Proof:
        """Return the function of the parameters whose result is `result`."""
        result = _NORMALIZER.normalize(result)
        out = relax.Var("out", result.ty)
        block = relax.DataflowBlock([*self.bindings, relax.VarBinding(out, result)])
        func = relax.Function(self.params, relax.SeqExpr([block], out), result.ty)
        return Proof(tvm.IRModule({"main": func}), self.inputs)


Instance = Callable[[Bench], relax.Expr]


def make_proof(
    rule: Rule, instance: Instance | None, seed: int, dtype: str, special: bool
) -> Proof:
    """Return the left side of `rule` as a function."""
    bench = Bench(np.random.default_rng(seed), dtype, special)
    result = (instance or _from_text(rule))(bench)
    return bench.finish(result)


def _from_text(rule: Rule) -> Instance:
    """Return an instance whose letters are tensors of random shapes that broadcast to one."""

    def build(bench: Bench) -> relax.Expr:
        letters: dict[str, relax.Expr] = {}

        def value(node: Node) -> relax.Expr:
            if isinstance(node, Number):
                return bench.full(node.value)
            if isinstance(node, Leaf):
                if node.name not in letters:
                    letters[node.name] = leaf(node)
                return letters[node.name]
            assert isinstance(node, Operator) and node.operands is not None
            return bench.emit(call(node.name, [value(o) for o in node.operands]))

        def leaf(node: Leaf) -> relax.Expr:
            if not node.is_constant:
                return bench.param(*bench.shape)
            shapes = [(), bench.shape[2:], (bench.shape[1], 1), (1, 1, 1)]
            shape = shapes[0] if node.name == "k" else shapes[bench.rng.integers(len(shapes))]
            return bench.const(*shape)

        node = parse(rule.left)
        assert isinstance(node, Operator) and node.operands is not None, rule.name
        return call(node.name, [value(o) for o in node.operands])

    return build


def call(name: str, args: list[relax.Expr]) -> relax.Expr:
    """Call an operator that needs no attributes."""
    place = relax.op
    for part in name.split("."):
        place = getattr(place, part)
    return place(*args)
