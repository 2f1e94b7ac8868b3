"""What a user's assert says: torch.export forgets the message of a condition, not its line."""

from __future__ import annotations

import ast
import linecache

_CHECKS = ("_check", "_check_index", "_check_value", "_check_type", "_check_not_implemented")


def check_at(file: str, line: int | None) -> ast.Assert | ast.Call | None:
    """Return the assert or the check of torch at a line of a file; None where there is none."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    line = line or 0
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Assert | ast.Call) and _checks(n)]
    found = [n for n in statements if n.lineno <= line <= (n.end_lineno or n.lineno)]
    return found[-1] if found else None


def _checks(node: ast.Assert | ast.Call) -> bool:
    if isinstance(node, ast.Assert):
        return True
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in _CHECKS


def message_of(statement: ast.Assert | ast.Call | None) -> str:
    """Return what an assert or a check says as far as it is known: of what is formatted, the code.

    "" where it says nothing, or nothing that the source tells.
    """
    return _text(_message(statement)) if statement is not None else ""


def _message(node: ast.Assert | ast.Call) -> ast.expr | None:
    if isinstance(node, ast.Assert):
        return node.msg
    given = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "message")]
    message = given[0] if given else None
    return message.body if isinstance(message, ast.Lambda) else message


def _text(message: ast.expr | None) -> str:
    if isinstance(message, ast.Constant):
        return str(message.value)
    if not isinstance(message, ast.JoinedStr):
        return ""
    parts = (
        f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _text(part)
        for part in message.values
    )
    return "".join(parts)
