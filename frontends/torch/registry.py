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

# Converters of nodes that take or give complex numbers.
COMPLEX_REGISTRY: dict[str, Converter] = {}


def converter(*targets: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of every overload in `targets`.

    Raises:
        ValueError: If an overload has a converter already.
    """
    return _registering(REGISTRY, targets)


def complex_converter(*targets: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of `targets` where complex numbers go in or out.

    Raises:
        ValueError: If an overload has such a converter already.
    """
    return _registering(COMPLEX_REGISTRY, targets)


def _registering(
    table: dict[str, Converter], targets: tuple[str, ...]
) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        for target in targets:
            if target in table:
                raise ValueError(f"{target} has a converter already")
            table[target] = function
        return function

    return register
