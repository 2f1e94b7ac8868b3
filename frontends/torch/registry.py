"""The table of converters: one function per ATen operator, found by the operator's name.

A converter's parameters are the operator's own, in the order of its ATen schema and with the
schema's defaults, after the graph builder:

    @converter("aten.relu.default")
    def relu(b: GraphBuilder, x: Value) -> Value:
        return relax.op.nn.relu(b.tensor(x))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Converter = Callable[..., Any]

REGISTRY: dict[str, Converter] = {}


def converter(*targets: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of every overload in `targets`.

    Raises:
        ValueError: If an overload has a converter already.
    """

    def register(function: Converter) -> Converter:
        for target in targets:
            if target in REGISTRY:
                raise ValueError(f"{target} has a converter already")
            REGISTRY[target] = function
        return function

    return register
