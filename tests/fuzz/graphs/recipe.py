"""A random graph as plain data: steps in order, from which Relax, ONNX and numbers are made.

A recipe can be sent to another process, printed, and made smaller step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz.graphs.sizes import Affine, Shape

Attributes = Mapping[str, Any]
INPUT, CONSTANT = "input", "constant"


@dataclass(frozen=True)
class TensorType:
    """A tensor: shape, dtype, bounds of its values, and whether no rounding can move them.

    Only an `exact` tensor may be rounded, compared or cast to integers: otherwise a sum in another
    order could legally change the result by 1.
    """

    shape: Shape
    dtype: str
    low: float = -4.0
    high: float = 4.0
    exact: bool = False

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def bound(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def like(self, **changes: Any) -> TensorType:
        """Return this type with some fields changed; what is computed is not exact."""
        return replace(self, **{"exact": not self.is_float, **changes})


Type = TensorType | tuple[Any, ...]


@dataclass(frozen=True)
class Step:
    """One operator applied to the results of earlier steps."""

    kind: str
    args: tuple[int, ...]
    attrs: Attributes
    type: Type


@dataclass(frozen=True)
class Recipe:
    """Steps in order and which of their results are returned.

    Args:
        symbols: Each size symbol with what it is equal to; None for one that inputs define.
        single: Whether the one output is returned as it is, not in a tuple.
        dataflow: Whether the bindings are in dataflow blocks.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    symbols: Mapping[str, Affine | None] = field(default_factory=dict)
    single: bool = False
    dataflow: bool = True

    def inputs(self) -> list[int]:
        """Return the steps that are inputs."""
        return [i for i, step in enumerate(self.steps) if step.kind == INPUT]

    def size(self) -> int:
        """Return how many steps compute something, those of branches and functions included."""
        inner = [a for s in self.steps for a in s.attrs.values() if isinstance(a, Recipe)]
        own = sum(step.kind not in (INPUT, CONSTANT) for step in self.steps)
        return own + sum(r.size() for r in inner)


def without_dead_steps(recipe: Recipe, *, keep_inputs: bool = False) -> Recipe:
    """Return the recipe with only the steps that an output needs, numbered anew."""
    needed = set(recipe.outputs)
    for index in range(len(recipe.steps) - 1, -1, -1):
        if index in needed:
            needed.update(recipe.steps[index].args)
        elif keep_inputs and recipe.steps[index].kind == INPUT:
            needed.add(index)
    number = {old: new for new, old in enumerate(sorted(needed))}
    steps = tuple(
        replace(recipe.steps[old], args=tuple(number[a] for a in recipe.steps[old].args))
        for old in number
    )
    return replace(recipe, steps=steps, outputs=tuple(number[o] for o in recipe.outputs))


def leaves(kind: Type) -> Sequence[TensorType]:
    """Return the tensors of a type, nested tuples flattened."""
    if isinstance(kind, TensorType):
        return [kind]
    return [leaf for part in kind for leaf in leaves(part)]
