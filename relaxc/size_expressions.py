"""Sizes that a signature computes from others, such as `2 * n` of `torch.export.Dim`."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping

Evaluate = Callable[[Mapping[str, int]], int]

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min}


def size_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of an expression of sizes; None where it cannot be known.

    Args:
        text: Of integers, names, `+ - * // %`, `max` and `min`.
        sizes: By the names of the symbols.
    """
    evaluate = _parsed(text)
    try:
        return None if evaluate is None else evaluate(sizes)
    except (KeyError, ZeroDivisionError):
        return None


@functools.cache
def _parsed(text: str) -> Evaluate | None:
    try:
        return _compiled(ast.parse(text, mode="eval").body)
    except (SyntaxError, KeyError):
        return None


def _compiled(node: ast.expr) -> Evaluate:
    """Return what evaluates an expression.

    Raises:
        KeyError: If it is of another form.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        number = node.value
        return lambda sizes: number
    if isinstance(node, ast.Name):
        name = node.id
        return lambda sizes: sizes[name]
    if isinstance(node, ast.BinOp):
        apply, left, right = _OPERATORS[type(node.op)], _compiled(node.left), _compiled(node.right)
        return lambda sizes: apply(left(sizes), right(sizes))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function, given = _FUNCTIONS[node.func.id], [_compiled(each) for each in node.args]
        return lambda sizes: function(*(each(sizes) for each in given))
    raise KeyError(ast.dump(node))
