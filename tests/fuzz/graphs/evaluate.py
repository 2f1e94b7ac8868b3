"""Compute a recipe in NumPy, floats in double precision, and say how far rounding may move it.

The tolerance is measured, not derived: the recipe is computed again with each rounded result moved
at random by a few units of its own dtype, and the results may differ by a multiple of that spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs.operator import OPERATORS, float_array
from tests.fuzz.graphs.recipe import CONSTANT, INPUT, Recipe, Step, TensorType
from tests.fuzz.graphs.sizes import Shape, concrete

_EPSILON = {"float16": 1e-3, "float32": 2.5e-7, "float64": 5e-16}
_SAMPLES = 3
_SAFETY = 16.0


def random_array(kind: TensorType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return values within the bounds of a type; floats are multiples of 1/8, so they are exact."""
    if kind.dtype == "bool":
        return rng.integers(0, 2, shape).astype("bool")
    if kind.is_float:
        return (rng.integers(round(kind.low * 8), round(kind.high * 8) + 1, shape) / 8).astype(
            kind.dtype
        )
    return rng.integers(int(kind.low), int(kind.high) + 1, shape).astype(kind.dtype)


def constant_array(step: Step) -> np.ndarray:
    """Return the values of a constant."""
    kind = step.type
    assert isinstance(kind, TensorType)
    if "value" in step.attrs:
        return np.array(step.attrs["value"], kind.dtype)
    rng = np.random.default_rng(step.attrs["seed"])
    return np.asarray(random_array(kind, concrete(kind.shape, {}), rng))


def symbol_values(recipe: Recipe, base: int) -> dict[str, int]:
    """Return the sizes of all symbols where those that inputs define are `base`."""
    values: dict[str, int] = {}
    for name, definition in recipe.symbols.items():
        values[name] = base if definition is None else concrete([definition], values)[0]
    return values


def input_arrays(recipe: Recipe, values: Mapping[str, int], seed: int) -> list[np.ndarray]:
    """Return random inputs."""
    rng = np.random.default_rng(seed)
    kinds = [recipe.steps[i].type for i in recipe.inputs()]
    return [np.asarray(random_array(k, concrete(k.shape, values), rng)) for k in kinds]  # type: ignore


class _Evaluator:
    """What operators ask while they are computed."""

    def __init__(self, values: Mapping[str, int], noise: np.random.Generator | None) -> None:
        self._values, self._noise = values, noise

    def __call__(self, shape: Shape) -> tuple[int, ...]:
        return concrete(shape, self._values)

    def run(self, recipe: Recipe, inputs: Sequence[Any]) -> Any:
        """Return the result, a tuple unless it is single."""
        arrays: dict[int, Any] = dict(zip(recipe.inputs(), map(float_array, inputs), strict=True))
        for number, step in enumerate(recipe.steps):
            if step.kind == CONSTANT:
                arrays[number] = float_array(constant_array(step))
            elif step.kind != INPUT:
                args = [arrays[a] for a in step.args]
                result = OPERATORS[step.kind].numpy(self, args, step.attrs)
                arrays[number] = self._rounded(result, step.type, args)
        outputs = tuple(arrays[o] for o in recipe.outputs)
        return outputs[0] if recipe.single else outputs

    def _rounded(self, result: Any, kind: Any, args: Sequence[Any]) -> Any:
        if isinstance(kind, tuple):
            return tuple(self._rounded(r, k, args) for r, k in zip(result, kind, strict=True))
        if self._noise is None or kind.exact or not kind.is_float or not np.size(result):
            return result
        operands = [a for a in args if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.size]
        scale = max(float(np.max(np.abs(a))) for a in [result, *operands])
        moved = self._noise.uniform(-1, 1, (2, *np.shape(result))) * _EPSILON[kind.dtype]
        return result * (1 + 2 * moved[0]) + scale * moved[1]


def evaluate(
    recipe: Recipe, inputs: Sequence[np.ndarray], values: Mapping[str, int]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the results, nested tuples flattened, and for each what it may differ by."""
    with np.errstate(all="ignore"):
        exact = flat(_Evaluator(values, None).run(recipe, inputs))
        spread = [np.zeros(np.shape(r)) for r in exact]
        for seed in range(_SAMPLES):
            moved = flat(_Evaluator(values, np.random.default_rng(seed)).run(recipe, inputs))
            for i, (a, b) in enumerate(zip(exact, moved, strict=True)):
                if a.dtype.kind == "f" and a.size:
                    # One element's luck must not make its tolerance smaller than its neighbours'.
                    spread[i] = np.maximum(spread[i], np.nanmax(np.abs(a - b), initial=0.0))
    return exact, [_SAFETY * s for s in spread]


def flat(result: Any) -> list[np.ndarray]:
    """Flatten a tensor or nested tuples of them into arrays."""
    if isinstance(result, np.ndarray | np.generic | bool | int | float):
        return [np.asarray(result)]
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [leaf for part in result for leaf in flat(part)]


def difference(
    got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], allowed: Sequence[np.ndarray]
) -> str:
    """Return what differs, "" if nothing does."""
    if len(got) != len(wanted):
        return f"{len(got)} results, expected {len(wanted)}"
    for i, (a, b, tolerance) in enumerate(zip(got, wanted, allowed, strict=True)):
        if a.shape != b.shape:
            return f"result {i} has shape {a.shape}, expected {b.shape}"
        if b.dtype.kind != "f":
            if a.dtype != b.dtype or not np.array_equal(a, b):
                return f"result {i} ({a.dtype}) differs from {b.dtype} in {_count(a != b)}"
            continue
        with np.errstate(all="ignore"):
            floor = 4 * _EPSILON[str(a.dtype)] * np.max(np.abs(b), initial=0.0) + 1e-12
            off = ~(np.abs(a.astype("float64") - b) <= tolerance + floor)
        off &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if off.any():
            worst = np.nanmax(np.abs(a.astype("float64") - b), initial=0.0)
            most = float(np.max(tolerance + floor))
            return f"result {i} ({a.dtype}) is off by {worst:.3g} > {most:.3g} in {_count(off)}"
    return ""


def _count(off: Any) -> str:
    return f"{int(np.sum(off))} of {np.size(off)} elements"
