"""The grammar of Einsum's equation, checked before anything else reads it.

onnx's own shape inference never ends on some that are wrong: a stray dot keeps it in its loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx

from frontends.errors import InvalidModel
from frontends.onnx.registry import normalize_domain
from frontends.onnx.subgraphs import node_title

# The labels of one tensor, an ellipsis at most once among them.
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")
_SHOWN = 80  # characters of a wrong equation in an error


def terms_of(equation: str) -> tuple[list[str], str | None]:
    """Return the labels of each operand, and the result's or None without an arrow.

    Raises:
        InvalidModel: it is none that the specification of Einsum-12 allows.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    for term in [*operands, right]:
        if not _TERM.fullmatch(term):
            raise InvalidModel(
                f"{term[:_SHOWN]!r} in equation {equation[:_SHOWN]!r} is not letters with at most "
                "one '...'"
            )
    return operands, right if arrow else None


def check_equations(nodes: Iterable[onnx.NodeProto], file: str) -> None:
    """Check the equations of nodes.

    Raises:
        InvalidModel: names the node, the part of the equation, and the file.
    """
    for node in nodes:
        try:
            check_equation(node)
        except InvalidModel as error:
            raise InvalidModel(error.message, node=node_title(node), file=file) from None


def check_equation(node: onnx.NodeProto) -> None:
    """Check a node's equation, if it is an Einsum with one of its own."""
    if node.op_type != "Einsum" or normalize_domain(node.domain):
        return
    for attribute in node.attribute:
        if attribute.name == "equation" and attribute.type == onnx.AttributeProto.STRING:
            terms_of(attribute.s.decode(errors="replace"))
