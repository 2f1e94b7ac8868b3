"""Branches and loop bodies as Relax functions of their own, called by the function they stand in.

A body reads values of the functions around it. Each run-time value it reads becomes a parameter of
its function, each symbolic size an element of a last parameter of shape type; so a function is
closed, and every pass may treat it as it treats `main`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, tirx


class Frame:
    """A private function while it is built: values of the function around become parameters."""

    def __init__(self, parent: Frame | None) -> None:
        """`parent` is the frame that it is built in; None is `main`."""
        self.parent = parent
        self.captured: list[tuple[relax.Var, relax.Var]] = []
        self._inner: dict[relax.Var, relax.Var] = {}

    def capture(self, outer: relax.Var) -> relax.Var:
        """Return a variable of the function around as it is called inside."""
        if outer not in self._inner:
            self._inner[outer] = relax.Var(outer.name, outer.ty)
            self.captured.append((outer, self._inner[outer]))
        return self._inner[outer]


@dataclass(frozen=True)
class PrivateFunction:
    """A function that takes its own arguments, what it captures, and sizes; it returns a tuple.

    Attributes:
        callee: Its name in the module.
        home: The frame it was defined in, where `captured` are variables; None is `main`.
        captured: What it reads of the function around it.
        symbols: The sizes it is given; the caller chooses the first ones, the others are the
            caller's own symbols of the same name.
        results: What it returns, in the frontend's terms and as it was built.
    """

    callee: tvm.ir.GlobalVar
    home: Frame | None
    captured: tuple[relax.Var, ...]
    symbols: tuple[tirx.Var, ...]
    results: Any


_DRAFTS = itertools.count()


def define(
    block: relax.BlockBuilder,
    hint: str,
    frame: Frame,
    own: Sequence[relax.Var],
    chosen: Sequence[tirx.Var],
    known: Iterable[tirx.Var],
    run: Callable[[], tuple[Any, list[relax.Expr]]],
    callee: tvm.ir.GlobalVar | None = None,
) -> PrivateFunction:
    """Build a function whose body `run` emits.

    Args:
        block: Builds the module; a function may be open in it already.
        hint: The function's name, made unique.
        frame: Takes what the body captures.
        own: The function's own parameters.
        chosen: Sizes that each call chooses.
        known: All symbols that exist outside.
        run: Emits the body; returns its results as values and as expressions.
        callee: The name to define, if calls of it were built already.
    """
    failure: Exception | None = None
    results: Any = None
    # The mark keeps the builder from taking the function for its draft, or an earlier draft for
    # this one, should they be equal: the variables would be the other's.
    with block.function(f"{hint}_draft", attrs={"draft": next(_DRAFTS)}, private=True):
        try:
            results, exprs = run()
        except Exception as error:  # noqa: BLE001 - the open blocks are closed, then it is raised
            failure, exprs = error, [relax.const(0)]
        everything = relax.Var("sizes", relax.ShapeType(list(dict.fromkeys([*chosen, *known]))))
        params = [*own, *(inner for _, inner in frame.captured), everything]
        draft = block.emit_func_output(relax.Tuple(exprs), params)
    if failure is not None:
        raise failure
    # The draft takes every symbol there is; the function takes those it uses.
    func = block.get()[draft]
    used = set(relax.analysis.free_vars(func.body))
    captured = [pair for pair in frame.captured if pair[1] in used]
    params = [*own, *(inner for _, inner in captured)]
    closed = relax.Function(params, func.body, func.ret_ty, is_pure=True)
    free = [v for v in relax.analysis.free_symbolic_vars(closed) if v not in set(chosen)]
    symbols = [*chosen, *sorted(free, key=lambda symbol: str(symbol.name))]
    if symbols:
        params.append(relax.Var("sizes", relax.ShapeType(symbols)))
    result_type = func.ret_ty if callee is None else block.get()[callee].ret_ty
    closed = relax.Function(params, func.body, result_type, is_pure=True)
    fresh = relax.utils.copy_with_new_vars(closed)
    if callee is None:
        callee = block.add_func(fresh, hint)
    else:
        block.update_func(callee, fresh)
    return PrivateFunction(
        callee,
        frame.parent,
        tuple(outer for outer, _ in captured),
        tuple(symbols),
        results,
    )


def declare_recursive(
    block: relax.BlockBuilder, like: PrivateFunction, name: str
) -> PrivateFunction:
    """Return a function to call before it is defined; it takes and returns what `like` does.

    Until `define` is given its `callee`, the name stands for `like`'s body.
    """
    func = block.get()[like.callee]
    erased = [
        field
        if field.shape is not None and not list(field.shape)
        else relax.TensorType(None, str(field.dtype.dtype), ndim=field.ndim)
        for field in func.ret_ty.fields
    ]
    stand_in = relax.Function(func.params, func.body, relax.TupleType(erased), is_pure=True)
    # The mark keeps the builder from taking it for the function that it is a copy of.
    stand_in = relax.utils.copy_with_new_vars(stand_in).with_attr("recursive", True)
    return replace(like, callee=block.add_func(stand_in, name))
