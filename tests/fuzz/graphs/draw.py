"""The state of a recipe while it is being drawn: steps so far, random choices, new operands."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.graphs.operator import OPERATORS
from tests.fuzz.graphs.recipe import CONSTANT, INPUT, Step, TensorType, Type
from tests.fuzz.graphs.sizes import Affine, Shape, Size

BOUNDS = {"float16": 60.0, "int8": 100.0, "uint8": 200.0}
_BOUND = 1e3


class Draw:
    """Collects steps; every random choice comes from `rng`."""

    def __init__(
        self, rng: random.Random, *, zero_sizes: bool = False, plain: bool = False
    ) -> None:
        self.rng = rng
        self.plain = plain  # few dtypes and shapes
        self.zero_sizes = zero_sizes  # whether a symbol may be 0 at run time
        self.steps: list[Step] = []
        self.symbols: dict[str, Affine | None] = {}

    def type(self, step: int) -> Any:
        """Return the type of a step's result."""
        return self.steps[step].type

    def append(self, kind: str, args: Sequence[int], attrs: dict[str, Any], type_: Type) -> int:
        """Add a step and return its number."""
        self.steps.append(Step(kind, tuple(args), attrs, type_))
        return len(self.steps) - 1

    def apply(self, kind: str, *args: int, **attrs: Any) -> int | None:
        """Add an operator; None if it does not take these operands or its values grow too large."""
        if any(a is None for a in args):
            return None
        result = OPERATORS[kind].infer([self.type(a) for a in args], attrs)
        if result is None or not _is_moderate(result):
            return None
        return self.append(kind, args, attrs, result)

    def pick(self, accept: Callable[[TensorType], bool] = lambda t: True) -> int | None:
        """Choose a tensor, a late one more likely than an early one."""
        found = [
            i
            for i, s in enumerate(self.steps)
            if isinstance(s.type, TensorType) and s.kind != CONSTANT and accept(s.type)
        ]
        if not found:
            return None
        return found[-1 - min(int(self.rng.expovariate(0.5)), len(found) - 1)]

    def pick_float(self, accept: Callable[[TensorType], bool] = lambda t: True) -> int | None:
        """Choose a tensor of floats."""
        return self.pick(lambda t: t.is_float and accept(t))

    def input(self, shape: Shape, dtype: str) -> int:
        """Add an input."""
        low, high = _range(dtype)
        return self.append(INPUT, (), {}, TensorType(shape, dtype, low, high, exact=True))

    def constant(
        self, shape: tuple[int, ...], dtype: str, low: float = -1.0, high: float = 1.0
    ) -> int:
        """Add a constant of random values; now and then one that is there already, once more."""
        kind = TensorType(shape, dtype, low, high, exact=True)
        seed = self.rng.randrange(1 << 20)
        if self.rng.random() < 0.2:
            seeds = [
                s.attrs["seed"]
                for s in self.steps
                if s.kind == CONSTANT and s.type == kind and "seed" in s.attrs
            ]
            seed = self.rng.choice(seeds) if seeds else seed
        return self.append(CONSTANT, (), {"seed": seed}, kind)

    def scalar(self, value: float, dtype: str) -> int:
        """Add a constant of no dimension."""
        kind = TensorType((), dtype, value, value, exact=True)
        return self.append(CONSTANT, (), {"value": value}, kind)

    def weight(self, shape: Shape, dtype: str, scale: float = 1.0) -> int:
        """Add a constant, or an input, or take a tensor that has this type."""
        draw = self.rng.random()
        if draw < 0.15:
            same = self.pick(lambda t: t.shape == shape and t.dtype == dtype and t.bound <= 4)
            if same is not None:
                return same
        if draw < 0.3 or not all(isinstance(s, int) for s in shape):
            return self.input(shape, dtype)
        return self.constant(shape, dtype, -scale, scale)  # type: ignore[arg-type]

    def may_be_zero(self, size: Size) -> bool:
        """Tell whether a size may be 0."""
        return size == 0 if isinstance(size, int) else self.zero_sizes

    def symbol(self, definition: Affine | None) -> Affine:
        """Add a size symbol."""
        name = f"s{len(self.symbols)}"
        self.symbols[name] = definition
        return Affine(name)


def _range(dtype: str) -> tuple[float, float]:
    if dtype == "bool":
        return 0.0, 1.0
    if dtype == "uint8":
        return 0.0, 4.0
    return (-2.0, 2.0) if dtype.startswith("float") else (-4.0, 4.0)


def _is_moderate(kind: Type) -> bool:
    if isinstance(kind, TensorType):
        known = [s for s in kind.shape if isinstance(s, int)]
        count = 1
        for size in known:
            count *= size
        low = -BOUNDS.get(kind.dtype, _BOUND) if kind.dtype != "uint8" else 0.0
        return (
            low <= kind.low <= kind.high <= BOUNDS.get(kind.dtype, _BOUND)
            and count <= 4096
            and len(kind.shape) <= 5
        )
    return all(_is_moderate(part) for part in kind)
