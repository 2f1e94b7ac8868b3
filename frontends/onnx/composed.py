"""Operators whose meaning is a few other operators, written as ONNX function bodies in text."""

from __future__ import annotations

from functools import cache

import onnx
import onnx.parser

from frontends.onnx.function_body import instantiate
from frontends.onnx.op import Op
from frontends.onnx.value import Value


def compose(op: Op, body: str, opset: int = 21) -> list[Value]:
    """Import the nodes of a function body in the place of `op`.

    Args:
        op: The node; its inputs are those of the body in order.
        body: "(inputs) => (outputs) { nodes }" in the syntax of `onnx.parser`. `@name` refers to an
            attribute of the node; where the node has none, the inner node takes its default.
        opset: The version of ai.onnx that the body is written for.
    """
    return op.expand(instantiate(_parse(body, opset), op.node))


@cache
def _parse(body: str, opset: int) -> onnx.FunctionProto:
    opsets = f'["" : {opset}, "com.microsoft" : 1]'
    return onnx.parser.parse_function(
        f'<opset_import: {opsets}, domain: "composed"> composed {body}'
    )
