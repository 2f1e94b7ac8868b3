"""Loops as recursive functions of logarithmic depth.

The virtual machine has calls and branches, no jumps back. One function does one step; `f(2n)` does
2n steps by calling `f(n)` twice, so a million steps are twenty calls deep. Where a condition may
end the loop, the second half runs only if the first one has not ended. A step's scan outputs are
tensors of one row; halves join their rows, so that joining costs a logarithmic factor, not a
square.

    counted       repeat(n): repeat(n // 2), then repeat(n - n // 2); all sizes are static
    conditional   f(2^k) up to the greatest trip count; where that is unknown, f(1) then f(2^4) then
                  ... f(2^20), and f(2^20) again as long as it takes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.control_flow.function_builder import FunctionBuilder
from frontends.control_flow.private_function import PrivateFunction
from frontends.control_flow.rows import join_rows, no_rows, one_row
from frontends.dims import Dim, depends_only_on, dims_of, dtype_of, is_static, prim
from frontends.errors import InvalidModel, UnsupportedOperator

_MOST_LEVELS = 20
_LEVELS_BETWEEN = 4

_Types = list[tuple[str, list[Dim | None]]]


@dataclass(frozen=True)
class Step:
    """What one step leaves.

    Attributes:
        goes_on: Whether another step may follow: known, or a tensor of one boolean.
        states: What the next step is given.
        rows: One tensor for each scan output.
    """

    goes_on: bool | relax.Expr
    states: list[relax.Expr]
    rows: list[relax.Expr]


@dataclass(frozen=True)
class Limit:
    """The greatest number of steps: a size, or else a tensor of one integer."""

    size: Dim | None = None
    tensor: relax.Expr | None = None


Body = Callable[[Dim, list[relax.Expr]], Step]


class Repetition:
    """One loop while it is imported.

    Args:
        builder: Builds the function that the loop stands in.
        title: Name for its functions and results, an identifier.
        body: Emits one step, where it is called; it gets the step's number and the states.
        limit: Returns the greatest number of steps where it is called, None if there is none.
    """

    def __init__(
        self,
        builder: FunctionBuilder,
        title: str,
        body: Body,
        limit: Callable[[], Limit | None],
    ) -> None:
        self._builder, self._title, self._body, self._limit = builder, title, body, limit
        self._visible = builder.known_symbols()
        self._index = builder.fresh_symbol("index")
        self._conditional = True
        self._dims: list[list[Dim]] = []
        self._dtypes: list[str] = []
        self._rows: list[relax.Expr] = []
        self._repeated: dict[int, PrivateFunction] = {}

    def run(
        self, states: Sequence[relax.Expr], start: bool | relax.Expr = True
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        """Emit the loop; return the last states and the scan outputs, rows along axis 0.

        Args:
            states: What the first step is given. They are returned if there surely is no step.
            start: Condition of the first step.
        """
        count = known_count(self._limit())
        if start is False:
            count = 0
        self._repeated[1] = self._settle(states)
        if count == 0:
            return list(states), [self._empty(row) for row in self._rows]
        levels = _MOST_LEVELS + 1 if count is None else (count - 1).bit_length()
        if not self._conditional and count is not None:
            whole = self._repeat(count)
        elif levels > _MOST_LEVELS:
            whole = self._chain()
        else:
            whole = self._repeat(1 << levels)
        call = self._builder.call(whole, states, [0])
        first = self._starts(start, count)
        if first is None:
            return self._finish(call, None if self._conditional else count)
        nothing = [first] if self._conditional else []
        nothing += [*states, *(self._empty(row) for row in self._rows)]
        return self._finish(self._builder.branch(first, call, relax.Tuple(nothing)), None)

    # Steps ------------------------------------------------------------------------------------

    def _settle(self, states: Sequence[relax.Expr]) -> PrivateFunction:
        """Build the step; a size that a step changes becomes a symbol of each step."""
        self._dtypes = [dtype_of(state) for state in states]
        self._dims = [dims_of(state) for state in states]
        while True:
            step = self._define_step()
            results = step.results[self._conditional : self._conditional + len(states)]
            changed = False
            for dims, result in zip(self._dims, results, strict=True):
                after = dims_of(result)
                if len(after) != len(dims):
                    raise UnsupportedOperator(
                        f"a loop's state changes its rank from {len(dims)} to {len(after)}"
                    )
                for axis, size in enumerate(after):
                    varies = not depends_only_on(dims[axis], self._visible)
                    if not varies and not self._builder.arithmetic.equal(dims[axis], size):
                        dims[axis] = self._builder.fresh_symbol("state")
                        changed = True
            if not changed:
                return step

    def _define_step(self) -> PrivateFunction:
        own = self._parameters()

        def run() -> list[relax.Expr]:
            step = self._body(self._index, list(own))
            self._rows = step.rows
            forever = step.goes_on is True
            if forever and self._limit() is None:
                raise InvalidModel(
                    "the loop has neither a trip count nor a condition: it never ends"
                )
            self._conditional = not forever or known_count(self._limit()) is None
            running = self._conditional
            first = [self._running(step.goes_on, self._index + 1)] if running else []
            rows = [one_row(self._builder, row) for row in step.rows]
            return [*first, *step.states, *rows]

        return self._define(f"{self._title}_step", run, own)

    def _define(
        self,
        name: str,
        run: Callable[[], list[relax.Expr]],
        own: Sequence[relax.Var] = (),
        declared: PrivateFunction | None = None,
    ) -> PrivateFunction:
        """Define a function that is given the number of a step."""

        def body() -> tuple[list[relax.Expr], list[relax.Expr]]:
            results = run()
            return results, results

        callee = None if declared is None else declared.callee
        return self._builder.define(name, body, own, [self._index], callee)

    def _repeat(self, count: int) -> PrivateFunction:
        if count not in self._repeated:
            first = count // 2
            name = f"{self._title}_{count}_steps"
            self._repeated[count] = self._sequel(
                self._repeat(first), self._repeat(count - first), first, name
            )
        return self._repeated[count]

    def _chain(self) -> PrivateFunction:
        """Return a function that runs ever longer parts until the condition ends them."""
        longest = self._repeat(1 << _MOST_LEVELS)
        rest = self._builder.declare(longest, f"{self._title}_rest")
        self._sequel(longest, rest, 1 << _MOST_LEVELS, f"{self._title}_rest", rest)
        for level in range(_MOST_LEVELS - _LEVELS_BETWEEN, -1, -_LEVELS_BETWEEN):
            name = f"{self._title}_from_{1 << level}"
            rest = self._sequel(self._repeat(1 << level), rest, 1 << level, name)
        return rest

    def _sequel(
        self,
        first: PrivateFunction,
        second: PrivateFunction,
        offset: int,
        name: str,
        declared: PrivateFunction | None = None,
    ) -> PrivateFunction:
        """Define the function that runs `first` and, unless that ended the loop, `second`."""
        own = self._parameters()
        builder = self._builder

        def run() -> list[relax.Expr]:
            call = builder.call(first, own, [self._index])
            head = builder.emit_tuple(call, self._title, self._types())
            if not self._conditional:
                return self._continue(second, head, offset)
            if self._rows:

                def longer() -> list[relax.Expr]:
                    assert builder.frame is not None
                    mine = [builder.frame.capture(outer) for outer in head]
                    return self._continue(second, mine, offset)

                joined = self._define(f"{name}_joined", longer)
                rest = builder.call(joined, (), [self._index])
            else:
                rest = builder.call(second, head[1:], [self._index + offset])
            chosen = builder.branch(head[0], rest, relax.Tuple(head))
            return list(builder.emit_tuple(chosen, self._title, self._types()))

        return self._define(name, run, own, declared)

    def _continue(
        self, second: PrivateFunction, head: list[relax.Var], offset: int
    ) -> list[relax.Expr]:
        """Run `second` on what the first part left, and join their rows."""
        states = len(self._dims)
        lead = int(self._conditional)
        call = self._builder.call(second, head[lead : lead + states], [self._index + offset])
        tail = self._builder.emit_tuple(call, self._title, self._types())
        rows = [
            join_rows(self._builder, [before, after])
            for before, after in zip(head[lead + states :], tail[lead + states :], strict=True)
        ]
        return [*tail[: lead + states], *rows]

    # Types ------------------------------------------------------------------------------------

    def _parameters(self) -> list[relax.Var]:
        pairs = zip(self._dims, self._dtypes, strict=True)
        return [
            relax.Var(f"state_{number}", relax.TensorType(list(dims), dtype))
            for number, (dims, dtype) in enumerate(pairs)
        ]

    def _types(self, count: int | None = None) -> _Types:
        """Return the types of what a function of this loop returns, None for each unknown size."""
        types: _Types = [("bool", [])] if self._conditional else []
        for dims, dtype in zip(self._dims, self._dtypes, strict=True):
            types.append((dtype, self._visible_dims(dims)))
        for row in self._rows:
            types.append((dtype_of(row), [count, *self._visible_dims(dims_of(row))]))
        return types

    def _visible_dims(self, dims: Sequence[Dim]) -> list[Dim | None]:
        return [dim if depends_only_on(dim, self._visible) else None for dim in dims]

    def _finish(
        self, call: relax.Expr, count: int | None
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        items: list[relax.Expr] = list(
            self._builder.emit_tuple(call, self._title, self._types(count))
        )[int(self._conditional) :]
        return items[: len(self._dims)], items[len(self._dims) :]

    def _empty(self, row: relax.Expr) -> relax.Expr:
        """Return no rows; sizes that only a step could tell are zero."""
        dims = [0 if dim is None else dim for dim in self._visible_dims(dims_of(row))]
        return no_rows(self._builder, dims, dtype_of(row))

    # Conditions -------------------------------------------------------------------------------

    def _starts(self, start: bool | relax.Expr, count: int | None) -> relax.Expr | None:
        """Return whether there is a first step; None if there surely is."""
        if start is True and (count is not None or self._limit() is None):
            return None
        return self._running(start, 0)

    def _running(self, condition: bool | relax.Expr, index: Dim) -> relax.Expr:
        """Return whether step `index` follows, given the condition that the last one left."""
        if condition is False:
            return relax.const(np.asarray(False))
        builder, limit = self._builder, self._limit()
        bound = None if limit is None else limit.size
        tensors: list[relax.Expr] = []
        sizes: list[Dim] = [index]
        if condition is not True:
            tensors.append(self._flat(condition))
        if bound is not None:
            sizes.append(bound)
        elif limit is not None:
            tensors.append(self._flat(limit.tensor))

        def compute(*arguments: Any) -> te.Tensor:
            *given, dims = arguments
            terms = [] if condition is True else [given[0](0)]
            if bound is not None:
                terms.append(prim(dims[0]) < prim(dims[1]))
            elif limit is not None:
                terms.append(prim(dims[0]) < given[-1](0).astype("int64"))
            result = terms[0] if len(terms) == 1 else tirx.all(*terms)
            return te.compute((), lambda: result, name="running")

        return builder.emit_te(compute, *tensors, name="running", dims=sizes)

    def _flat(self, tensor: relax.Expr | None) -> relax.Expr:
        return self._builder.emit(R.reshape(tensor, relax.ShapeExpr([1])), "flat")


def known_count(limit: Limit | None) -> int | None:
    """Return the greatest number of steps if it is known."""
    if limit is None or limit.size is None or not is_static(limit.size):
        return None
    return max(int(limit.size), 0)
