"""Branches and loop bodies as Relax functions of their own, called by the function they stand in.

A subgraph reads names of the graphs around it. Each run-time value it reads becomes a parameter of
its function, each symbolic size an element of a last parameter of shape type; so a function is
closed, and every pass may treat it as it treats `main`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import tvm
from tvm import relax, tirx

from frontends.onnx.dims import Dim
from frontends.onnx.symbols import sanitize
from frontends.onnx.value import SequenceValue, Value
from frontends.storage_types import container

if TYPE_CHECKING:
    from frontends.onnx.graph_builder import Scope


class Frame(dict[str, Value]):
    """The names a private function sees while it is built; outer values become parameters."""

    def __init__(self, outer: Scope, parent: Frame | None) -> None:
        super().__init__()
        self.parent = parent
        self.captured: list[tuple[Value, relax.Var]] = []
        self._outer = outer
        self._inner: dict[relax.Expr, Value] = {}

    def __missing__(self, name: str) -> Value:
        self[name] = value = self.capture(self._outer[name])
        return value

    def capture(self, value: Value) -> Value:
        """Return a value of the scope around as it is called inside."""
        if isinstance(value, SequenceValue):
            items = tuple(self.capture(item) for item in value.items)
            return SequenceValue(value.name, value.dtype, items=items)
        if value.array is not None:
            return value  # a constant may be embedded anywhere
        if value.symbolic is not None:
            return Value(value.name, value.dtype, symbolic=value.symbolic)
        if not isinstance(value.expr, relax.Var):
            return value
        if value.expr not in self._inner:
            parameter = relax.Var(sanitize(value.name or "captured"), value.expr.ty)
            self.captured.append((value, parameter))
            self._inner[value.expr] = Value(value.name, value.dtype, expr=parameter)
        return self._inner[value.expr]


@dataclass(frozen=True)
class PrivateFunction:
    """A function that takes its own arguments, what it captures, and sizes; it returns a tuple.

    Attributes:
        callee: Its name in the module.
        home: The frame it was defined in, where `captured` are values; None is `main`.
        captured: What it reads of the scope around it.
        symbols: The sizes it is given; the caller chooses the first ones, the others are the
            caller's own symbols of the same name.
        results: What it returns, in the terms it was built with.
    """

    callee: tvm.ir.GlobalVar
    home: Frame | None
    captured: tuple[Value, ...]
    symbols: tuple[tirx.Var, ...]
    results: tuple[Value, ...]


_DRAFTS = itertools.count()


def parameter(name: str, dims: Sequence[Dim], dtype: str) -> relax.Var:
    """Return a function parameter of an ONNX type."""
    return relax.Var(name, relax.TensorType(list(dims), container(dtype)))


def define(
    block: relax.BlockBuilder,
    hint: str,
    frame: Frame,
    own: Sequence[relax.Var],
    chosen: Sequence[tirx.Var],
    known: Iterable[tirx.Var],
    run: Callable[[], tuple[list[Value], list[relax.Expr]]],
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
    results: list[Value] = []
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
        tuple(results),
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
