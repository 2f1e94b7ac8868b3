"""Make a failing recipe smaller while it still fails in the same way.

Greedy delta debugging over steps: outputs are dropped, a step becomes an input, or its readers
read one of its operands instead; what nothing needs any more falls away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.graphs.recipe import (
    CONSTANT,
    INPUT,
    Recipe,
    Step,
    TensorType,
    without_dead_steps,
)

MOST_TRIALS = 400


def shrink(recipe: Recipe, fails: Callable[[Recipe], bool], trials: int = MOST_TRIALS) -> Recipe:
    """Return the smallest recipe found for which `fails` still holds; it holds for `recipe`."""
    best, left, improved = recipe, trials, True
    while improved and left > 0:
        improved = False
        for candidate in candidates(best):
            if left <= 0:
                break
            left -= 1
            if fails(candidate):
                best, improved = candidate, True
                break
    return best


def candidates(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes that are smaller, those that save most first."""
    if len(recipe.outputs) > 1:
        for output in recipe.outputs:
            yield without_dead_steps(replace(recipe, outputs=(output,)))
    trimmed = without_dead_steps(recipe)
    if trimmed != recipe:
        yield trimmed
    computed = [i for i, s in enumerate(recipe.steps) if s.kind not in (INPUT, CONSTANT)]
    for index in [*computed[len(computed) // 2 :], *computed[: len(computed) // 2]]:
        if isinstance(recipe.steps[index].type, TensorType) and index not in recipe.outputs:
            yield without_dead_steps(_as_input(recipe, index))
    for index in computed:
        yield from (without_dead_steps(r) for r in _bypassed(recipe, index))
    for index in reversed(computed):
        if index not in recipe.outputs and isinstance(recipe.steps[index].type, TensorType):
            yield without_dead_steps(replace(recipe, outputs=(index,)))
    for index in computed:
        for attrs in _smaller_bodies(recipe.steps[index]):
            yield _with_step(recipe, index, replace(recipe.steps[index], attrs=attrs))
    if not recipe.single and len(recipe.outputs) == 1:
        if isinstance(recipe.steps[recipe.outputs[0]].type, TensorType):
            yield replace(recipe, single=True)


def _with_step(recipe: Recipe, index: int, step: Step) -> Recipe:
    return replace(recipe, steps=(*recipe.steps[:index], step, *recipe.steps[index + 1 :]))


def _as_input(recipe: Recipe, index: int) -> Recipe:
    kind = recipe.steps[index].type
    assert isinstance(kind, TensorType)
    return _with_step(recipe, index, Step(INPUT, (), {}, kind))


def _bypassed(recipe: Recipe, index: int) -> Iterator[Recipe]:
    """Yield the recipe with an operand of the same type in the place of a step."""
    kind = recipe.steps[index].type
    for arg in recipe.steps[index].args:
        other = recipe.steps[arg].type
        if not isinstance(kind, TensorType) or not isinstance(other, TensorType):
            continue
        if (kind.shape, kind.dtype) != (other.shape, other.dtype):
            continue
        if recipe.steps[arg].kind == CONSTANT:
            continue
        steps = tuple(
            replace(s, args=tuple(arg if a == index else a for a in s.args)) for s in recipe.steps
        )
        outputs = tuple(arg if o == index else o for o in recipe.outputs)
        yield replace(recipe, steps=steps, outputs=outputs)


def _smaller_bodies(step: Step) -> Iterator[dict[str, object]]:
    """Yield a step's attributes with one step of a branch or function bypassed."""
    for name, body in step.attrs.items():
        if isinstance(body, Recipe):
            for index, inner in enumerate(body.steps):
                if inner.kind not in (INPUT, CONSTANT):
                    for smaller in _bypassed(body, index):
                        kept = without_dead_steps(smaller, keep_inputs=True)
                        if kept.size() < body.size():
                            yield {**step.attrs, name: kept}
