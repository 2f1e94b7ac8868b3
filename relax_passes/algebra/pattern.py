"""Read the text of a rule, and match it against the bindings of a block."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

_BINARY = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "floor_mod",
    ast.Pow: "power",
    ast.MatMult: "matmul",
    ast.LShift: "left_shift",
}
_COMPARE = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
_LOGIC = {ast.And: "logical_and", ast.Or: "logical_or"}
# Names in the text that Relax spells otherwise; `max` and `min` take two tensors, `amax` reduces.
_NAMES = {
    "max": "maximum",
    "min": "minimum",
    "amax": "max",
    "amin": "min",
    "cast": "astype",
    "slice": "strided_slice",
    "transpose": "permute_dims",
    "broadcast": "broadcast_to",
    **{
        name: f"nn.{name}"
        for name in ("relu", "softmax", "log_softmax", "softplus", "pad", "conv2d")
    },
    **{f"{kind}_pool{n}d": f"nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)},
}
COMMUTATIVE = frozenset(
    "add multiply maximum minimum equal not_equal logical_and logical_or logical_xor".split()
)
CONSTANTS = frozenset("abcd")
SCALAR_CONSTANT = "k"


@dataclass(frozen=True)
class Leaf:
    """A letter: any tensor, a constant or a constant of one element."""

    name: str

    @property
    def is_constant(self) -> bool:
        """Return whether only constants match."""
        return self.name in CONSTANTS or self.name == SCALAR_CONSTANT


@dataclass(frozen=True)
class Number:
    """A constant all of whose elements have this value, the sign of zero included."""

    value: float

    def equals(self, other: float | None) -> bool:
        """Return whether `other` is this number."""
        return other == self.value and math.copysign(1, other) == math.copysign(1, self.value)


@dataclass(frozen=True)
class Operator:
    """A call of a Relax operator; `operands` is None where any will do."""

    name: str  # without "relax."
    operands: tuple[Node, ...] | None


Node = Leaf | Number | Operator


@cache
def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        ValueError: If the text has a construct that patterns do not know.
    """
    return _node(ast.parse(text, mode="eval").body)


def _node(tree: ast.expr) -> Node:
    if isinstance(tree, ast.Name):
        return Leaf(tree.id)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float):
        return Number(float(tree.value))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _node(tree.operand)
        return Number(-inner.value) if isinstance(inner, Number) else Operator("negative", (inner,))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return Operator("logical_not", (_node(tree.operand),))
    if isinstance(tree, ast.BinOp):
        return Operator(_BINARY[type(tree.op)], (_node(tree.left), _node(tree.right)))
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        name = _COMPARE[type(tree.ops[0])]
        return Operator(name, (_node(tree.left), _node(tree.comparators[0])))
    if isinstance(tree, ast.BoolOp) and len(tree.values) == 2:
        return Operator(_LOGIC[type(tree.op)], tuple(_node(v) for v in tree.values))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        name = _NAMES.get(tree.func.id, tree.func.id)
        if [a.value for a in tree.args if isinstance(a, ast.Constant)] == [...]:
            return Operator(name, None)
        return Operator(name, tuple(_node(a) for a in tree.args))
    raise ValueError(f"a pattern cannot hold {ast.unparse(tree)!r}")


def may_match(node: Operator, kinds: list[str]) -> bool:
    """Tell at a glance whether the operands' kinds (`Bindings.kind_of`) rule a match out."""
    if node.operands is None:
        return True
    orders = [kinds, kinds[::-1]] if node.name in COMMUTATIVE else [kinds]
    return any(all(map(_fits, node.operands, order)) for order in orders)


def _fits(node: Node, kind: str) -> bool:
    if isinstance(node, Operator):
        return kind == node.name
    return kind == "constant" or (isinstance(node, Leaf) and not node.is_constant)


def matches(node: Node, value: Any, scope: Any, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each way in which `node` matches `value`, as letters to values.

    Args:
        node: The pattern.
        value: A Relax expression.
        scope: What `Bindings` offers: `call_of`, `is_constant`, `uniform`, `same`.
        found: Letters that are bound already. Matched inner calls are put under their variables.
    """
    if isinstance(node, Leaf):
        if node.name in found:
            if scope.same(found[node.name], value):
                yield found
        elif scope.is_tensor(value) and (not node.is_constant or scope.is_constant(value)):
            if node.name != SCALAR_CONSTANT or scope.uniform(value, single=True) is not None:
                yield {**found, node.name: value}
        return
    if isinstance(node, Number):
        if scope.is_constant(value) and node.equals(scope.uniform(value)):
            yield found
        return
    call = scope.call_of(value)
    if call is None or scope.name_of(call) != node.name:
        return
    if call is not value:
        found = {**found, value: call}
    yield from operand_matches(node, call, scope, found)


def operand_matches(
    node: Operator, call: Any, scope: Any, found: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield each way in which the operands of `node` match those of `call`, a call of its name."""
    if node.operands is None:
        yield found
        return
    args = scope.args_of(call)
    if len(args) < len(node.operands):
        return
    orders = [args]
    if node.name in COMMUTATIVE:
        orders.append(args[::-1])
    for order in orders:
        partial = [found]
        for operand, arg in zip(node.operands, order, strict=False):
            partial = [more for one in partial for more in matches(operand, arg, scope, one)]
            if not partial:
                break
        yield from partial
