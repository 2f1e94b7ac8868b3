"""Draw a random legal graph from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.graphs import operators  # noqa: F401 - fills the table
from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.motifs import (
    MOTIFS,
    many_readers,
    partly_used,
    residual,
    stated_twice,
    two_views,
)
from tests.fuzz.graphs.operator import OPERATORS
from tests.fuzz.graphs.recipe import CONSTANT, INPUT, Recipe, TensorType, without_dead_steps
from tests.fuzz.graphs.sizes import Shape, Size

_DTYPES = ["float32"] * 8 + ["float64", "float16", "int32", "int64", "bool", "int8"]
_MOTIF_SHARE = 0.25


# What a memory plan can get wrong: names, views, tuples, branches, and results in place. Few kinds
# of kernels on few shapes, so that many graphs share those that are compiled.
ALIASES = (
    "relu", "negative", "add", "multiply", "reshape", "expand_dims", "squeeze", "permute_dims",
    "slice", "concat", "split", "softmax", "sum", "matmul", "tuple", "item", "match_cast", "if",
    "call",
)  # fmt: skip


def generate(seed: str, *, onnx: bool = False, aliases: bool = False, largest: int = 25) -> Recipe:
    """Return the recipe that `seed` names.

    Args:
        onnx: Draw only what ONNX has, and no sizes that only Relax can state.
        aliases: Draw from `ALIASES` only.
        largest: The greatest number of operators, besides those of branches and functions.
    """
    rng = random.Random(seed)
    draw = Draw(rng, zero_sizes=rng.random() < 0.15, plain=aliases)
    kinds = [n for n, o in OPERATORS.items() if not onnx or o.onnx is not None]
    if aliases:
        kinds = list(ALIASES)
    weights = [OPERATORS[n].weight for n in kinds]
    _add_inputs(draw)
    count = rng.randrange(3, largest + 1)
    motifs = [m for m in MOTIFS if not onnx or m.__name__ != "stated_twice"]
    if aliases:
        motifs = [residual, two_views, stated_twice, many_readers, partly_used]
    for _ in range(20 * count):
        if sum(s.kind not in (INPUT, CONSTANT) for s in draw.steps) >= count:
            break
        if rng.random() < _MOTIF_SHARE:
            rng.choice(motifs)(draw)
        else:
            _add_operator(draw, rng.choices(kinds, weights)[0])
    return _finish(draw, onnx)


def _add_operator(draw: Draw, kind: str) -> None:
    before = len(draw.steps)
    proposal = OPERATORS[kind].propose(draw)
    if proposal is None or draw.apply(kind, *proposal[0], **proposal[1]) is None:
        del draw.steps[before:]  # constants made for it


def _add_inputs(draw: Draw) -> None:
    rng = draw.rng
    symbol = draw.symbol(None) if rng.random() < 0.35 else None
    for number in range(rng.choice([1, 1, 2, 3])):
        shape = list(rng.choice([(4, 8), (2, 4, 4), (8,)]) if draw.plain else _shape(rng))
        if symbol is not None and shape and (number == 0 or rng.random() < 0.6):
            # Where a size is symbolic: the batch, or the length of a sequence.
            shape[rng.choice([0, 0, min(1, len(shape) - 1)]) if len(shape) == 3 else 0] = symbol
        elif draw.zero_sizes and shape and rng.random() < 0.5:
            shape[rng.randrange(len(shape))] = 0
        if symbol is not None and number == 0 and symbol not in shape:
            shape = [symbol, 4]
        draw.input(tuple(shape), "float32" if draw.plain else rng.choice(_DTYPES))


def _shape(rng: random.Random) -> Shape:
    draw: list[Callable[[], tuple[Size, ...]]] = [
        lambda: (rng.choice([1, 1, 2]), rng.choice([3, 4, 8, 16]), *[rng.choice([5, 8])] * 2),
        lambda: (rng.choice([1, 2]), rng.choice([4, 6]), rng.choice([4, 8])),
        lambda: (rng.choice([1, 4, 7]), rng.choice([4, 8])),
        lambda: (rng.choice([4, 8, 16]),),
        lambda: (),
    ]
    return rng.choices(draw, [4, 4, 4, 1.5, 0.5])[0]()


def _finish(draw: Draw, onnx: bool) -> Recipe:
    """Choose what is returned: values that nothing reads, now and then others."""
    rng = draw.rng
    read = {a for s in draw.steps for a in s.args}
    computed = [i for i, s in enumerate(draw.steps) if s.kind not in (INPUT, CONSTANT)]
    if onnx:
        computed = [i for i in computed if isinstance(draw.type(i), TensorType)]
    ends = [i for i in computed if i not in read] or computed[-1:] or [0]
    rng.shuffle(ends)
    outputs = ends[: rng.choice([1, 2, 3, 6])]
    if computed and rng.random() < 0.2:
        outputs.append(rng.choice(computed))
    if not onnx and rng.random() < 0.15:
        outputs.append(rng.choice([i for i, s in enumerate(draw.steps) if s.kind == INPUT]))
    if not onnx and rng.random() < 0.1:
        outputs.append(rng.choice(outputs))
    if onnx:
        outputs = list(dict.fromkeys(outputs))
    single = len(outputs) == 1 and isinstance(draw.type(outputs[0]), TensorType)
    recipe = Recipe(
        tuple(draw.steps),
        tuple(outputs),
        dict(draw.symbols),
        single=single and rng.random() < 0.8,
        dataflow=rng.random() < 0.85,
    )
    return without_dead_steps(recipe, keep_inputs=True) if onnx or rng.random() < 0.6 else recipe
