"""Tuples, stated types, branches and private functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.operators.binary import partner
from tests.fuzz.graphs.operators.views import regroup
from tests.fuzz.graphs.recipe import INPUT, Attributes, Recipe, TensorType, Type
from tests.fuzz.graphs.sizes import Affine, broadcast, product

Proposal = tuple[Sequence[int], dict[str, Any]] | None
_KEEPING = ("relu", "tanh", "sigmoid", "abs", "negative", "logical_not", "exp", "square")


# Tuples -------------------------------------------------------------------------------------------


def _propose_tuple(draw: Draw) -> Proposal:
    found = [draw.pick() for _ in range(draw.rng.choice([1, 2, 3]))]
    older = [i for i, s in enumerate(draw.steps) if isinstance(s.type, tuple)]
    if older and draw.rng.random() < 0.4:
        found.append(draw.rng.choice(older))
    return None if None in found else ([f for f in found if f is not None], {})


def _propose_item(draw: Draw) -> Proposal:
    found = [i for i, s in enumerate(draw.steps) if isinstance(s.type, tuple) and s.type]
    if not found:
        return None
    source = found[-1] if draw.rng.random() < 0.6 else draw.rng.choice(found)
    return [source], {"index": draw.rng.randrange(len(draw.type(source)))}


def _infer_item(types: Sequence[Any], attrs: Attributes) -> Type | None:
    (kind,), index = types, attrs["index"]
    return kind[index] if isinstance(kind, tuple) and index < len(kind) else None


add(
    "tuple",
    Operator(
        lambda types, attrs: tuple(types),
        lambda maker, args, attrs: maker.tuple(args),
        lambda maker, args, attrs: tuple(args),
        _propose_tuple,
        lambda g, names, step, types: list(names),
        weight=1.0,
    ),
)
add(
    "item",
    Operator(
        _infer_item,
        lambda maker, args, attrs: maker.item(args[0], attrs["index"]),
        lambda maker, args, attrs: args[0][attrs["index"]],
        _propose_item,
        lambda g, names, step, types: names[0][step.attrs["index"]],
        weight=4.0,
    ),
)


# A stated type: a second name of the same tensor, maybe with symbols of its own -------------------


def _infer_match_cast(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,) = types
    if not is_tensor(kind) or len(kind.shape) != len(attrs["shape"]):
        return None
    return kind.like(shape=attrs["shape"], exact=kind.exact)


def _propose_match_cast(draw: Draw) -> Proposal:
    x = draw.pick(lambda t: len(t.shape) > 0)
    if x is None:
        return None
    shape = tuple(
        draw.symbol(s) if isinstance(s, Affine) and draw.rng.random() < 0.5 else s
        for s in draw.type(x).shape
    )
    return [x], {"shape": shape}


add(
    "match_cast",
    Operator(
        _infer_match_cast,
        lambda maker, args, attrs: maker.match_cast(args[0], attrs["shape"]),
        lambda maker, args, attrs: args[0],
        _propose_match_cast,
        weight=1.0,
    ),
)


# Branches and private functions -------------------------------------------------------------------


def is_self_contained(kind: TensorType) -> bool:
    """Tell whether every symbol of a parameter's type is a size of it: a function may take it."""
    sizes = [s for s in kind.shape if isinstance(s, Affine)]
    return all(s == Affine(s.symbol) for s in sizes)


def _keep_type(draw: Draw, x: int, others: Sequence[int]) -> int:
    """Add one or two operators whose result has the type of `x`."""
    kind = draw.type(x)
    way = draw.rng.random()
    found: int | None = None
    if way < 0.3:
        found = draw.apply(draw.rng.choice(_KEEPING), x)
    elif way < 0.5 and kind.dtype != "bool":
        other = draw.rng.choice(list(others))
        if draw.type(other).dtype != kind.dtype:
            other = x
        if broadcast(kind.shape, draw.type(other).shape) == kind.shape:
            found = draw.apply(draw.rng.choice(["add", "subtract", "multiply"]), x, other)
    elif way < 0.65 and kind.dtype != "bool":
        constant = partner(draw, kind, lambda t: broadcast(kind.shape, t.shape) == kind.shape)
        found = draw.apply(draw.rng.choice(["add", "multiply"]), x, constant)
    elif way < 0.85 and product(kind.shape) is not None:
        flat = (product(kind.shape),) if draw.rng.random() < 0.5 else regroup(draw, kind.shape)
        found = _there_and_back(draw, x, flat)
    elif len(kind.shape) > 1:
        axes = tuple(reversed(range(len(kind.shape))))
        turned = draw.apply("permute_dims", x, axes=axes)
        found = draw.apply("permute_dims", turned, axes=axes)  # type: ignore[arg-type]
    same = found is not None and draw.type(found).shape == kind.shape
    return found if same else x  # type: ignore[return-value]


def _there_and_back(draw: Draw, x: int, shape: Any) -> int | None:
    there = draw.apply("reshape", x, shape=shape)
    if there is None:
        return None
    if draw.rng.random() < 0.5:
        there = draw.apply("tanh", there) or there
    return draw.apply("reshape", there, shape=draw.type(x).shape)


def _body(draw: Draw, captured: Sequence[int], results: Sequence[int]) -> Recipe:
    """Return a recipe over captured tensors, whose results have the types of some of them."""
    inner = Draw(draw.rng, zero_sizes=draw.zero_sizes)
    for x in captured:
        inner.append(INPUT, (), {}, draw.type(x))
    outputs = []
    for result in results:
        x = result
        for _ in range(draw.rng.randrange(4)):
            x = _keep_type(inner, x, range(len(captured)))
        outputs.append(x)
    return Recipe(tuple(inner.steps), tuple(outputs), single=len(outputs) == 1)


def _joined(kinds: Sequence[TensorType]) -> TensorType:
    low, high = min(t.low for t in kinds), max(t.high for t in kinds)
    return kinds[0].like(low=low, high=high, exact=all(t.exact for t in kinds))


def _infer_bodies(bodies: Sequence[Recipe], captured: Sequence[Any]) -> Type | None:
    types = []
    for body in bodies:
        given = [body.steps[i].type for i in body.inputs()]
        if [(g.shape, g.dtype) for g in given] != [(c.shape, c.dtype) for c in captured]:
            return None
        types.append([body.steps[o].type for o in body.outputs])
    joined = tuple(_joined(parts) for parts in zip(*types, strict=True))
    return joined[0] if bodies[0].single else joined


def _infer_if(types: Sequence[Any], attrs: Attributes) -> Type | None:
    condition, *captured = types
    if not is_tensor(condition, "bool") or condition.shape != ():
        return None
    return _infer_bodies([attrs["then"], attrs["other"]], captured)


def _captured(draw: Draw) -> list[int] | None:
    found = [draw.pick(is_self_contained) for _ in range(draw.rng.choice([1, 2, 3]))]
    if None in found:
        return None
    return list(dict.fromkeys(f for f in found if f is not None))


def _propose_if(draw: Draw) -> Proposal:
    captured = _captured(draw)
    if captured is None:
        return None
    condition = draw.pick(lambda t: t.shape == () and t.dtype == "bool")
    if condition is None:
        condition = draw.input((), "bool")
    results = [draw.rng.randrange(len(captured)) for _ in range(draw.rng.choice([1, 1, 2]))]
    then, other = (_body(draw, captured, results) for _ in range(2))
    attrs = {"then": then, "other": other, "inline": draw.rng.random() < 0.6}
    return [condition, *captured], attrs


def _propose_call(draw: Draw) -> Proposal:
    captured = _captured(draw)
    if captured is None:
        return None
    results = [draw.rng.randrange(len(captured)) for _ in range(draw.rng.choice([1, 1, 2]))]
    return captured, {"body": _body(draw, captured, results)}


add(
    "if",
    Operator(
        _infer_if,
        lambda maker, args, attrs: maker.branch(args[0], args[1:], attrs),
        lambda maker, args, attrs: maker.run(attrs["then" if args[0] else "other"], args[1:]),
        _propose_if,
        lambda g, names, step, types: g.branch(names, step, types),
        weight=1.5,
    ),
)
add(
    "call",
    Operator(
        lambda types, attrs: _infer_bodies([attrs["body"]], types),
        lambda maker, args, attrs: maker.call(attrs["body"], args),
        lambda maker, args, attrs: maker.run(attrs["body"], args),
        _propose_call,
        weight=1.0,
    ),
)
