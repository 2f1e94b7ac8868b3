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
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.dims import Dim, depends_only_on, is_static, prim
from frontends.onnx.graph_builder import GraphBuilder
from frontends.onnx.op import numpy_dtype
from frontends.onnx.private_function import PrivateFunction, parameter
from frontends.onnx.value import Value, structure_of, tensors_of, with_tensors
from frontends.storage_types import container

# body(index, states) -> (condition, states, scan outputs)
Body = Callable[[Dim, list[Value]], tuple[Value, list[Value], list[Value]]]

_MOST_LEVELS = 20
_LEVELS_BETWEEN = 4
# Beyond this many steps of one node each, a loop body is a function rather than repeated code.
_MAX_UNROLLED_NODES = 64

_Types = list[tuple[str, list[Dim | None]]]


class Repetition:
    """One loop while it is imported.

    Args:
        builder: Builds the function that the loop stands in.
        title: Name for its functions and results.
        body: Emits one step, where it is called.
        nodes: Number of nodes in the body.
        limit: Returns the greatest number of steps where it is called, None if there is none.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        title: str,
        body: Body,
        nodes: int,
        limit: Callable[[], Value | None],
    ) -> None:
        self._builder, self._title, self._body, self._limit = builder, title, body, limit
        self._nodes = nodes
        self._visible = builder.known_symbols()
        self._index = builder.fresh_symbol("index")
        self._conditional = True
        self._dims: list[list[Dim]] = []
        self._dtypes: list[str] = []
        self._rows: list[Value] = []
        self._repeated: dict[int, PrivateFunction] = {}

    def run(self, states: Sequence[Value], start: Value | None) -> tuple[list[Value], list[Value]]:
        """Emit the loop; return the last states and the scan outputs, rows along axis 0.

        Args:
            states: What the first step is given.
            start: Condition of the first step; None if it runs if the limit allows one.
        """
        count = self._count()
        if start is not None and start.array is not None:
            if not bool(start.array.reshape(-1)[0]):
                count = 0
            start = None
        structured = any(structure_of(state) != "tensor" for state in states)
        if count is not None and start is None and count > 0:
            if structured or count * self._nodes <= _MAX_UNROLLED_NODES:
                unrolled = self._unroll(count, states)
                if unrolled is not None:
                    return unrolled
        if structured:
            return self._run_on_elements(states, start)
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
        call = self._builder.call(whole, *self._first(states))
        first = self._starts(start, count)
        if first is None:
            return self._finish(call, None if self._conditional else count)
        nothing = [first] if self._conditional else []
        nothing += self._first(states)[0]
        nothing += [self._builder.expression(self._empty(row)) for row in self._rows]
        return self._finish(self._builder.branch(first, call, relax.Tuple(nothing)), None)

    def _run_on_elements(
        self, states: Sequence[Value], start: Value | None
    ) -> tuple[list[Value], list[Value]]:
        """Carry the elements of sequences, whose number no step changes, as states of their own."""
        body = self._body
        structure = [structure_of(state) for state in states]

        def step(index: Dim, elements: list[Value]) -> tuple[Value, list[Value], list[Value]]:
            condition, after, rows = body(index, with_tensors(states, iter(elements)))
            if [structure_of(state) for state in after] != structure:
                raise UnsupportedOperator(
                    "a loop whose steps change the length of a sequence, and whose number of steps "
                    "is known only at run time"
                )
            return condition, tensors_of(after), rows

        self._body = step
        final, scans = self.run(tensors_of(states), start)
        return with_tensors(states, iter(final)), scans

    # Steps ------------------------------------------------------------------------------------

    def _unroll(
        self, count: int, states: Sequence[Value]
    ) -> tuple[list[Value], list[Value]] | None:
        """Emit each step in place; None if a step's condition is known only at run time."""
        columns: list[list[Value]] = []
        current = list(states)
        for index in range(count):
            condition, current, rows = self._body(index, current)
            columns.append(rows)
            if index == count - 1:
                break
            if condition.array is None:
                return None
            if not bool(condition.array.reshape(-1)[0]):
                break
        scans = []
        for column in zip(*columns, strict=True):
            if any(structure_of(row) != "tensor" for row in column):
                raise UnsupportedOperator("a scan output that is a sequence or an optional")
            parts = [self._row(row) for row in column]
            joined = parts[0] if len(parts) == 1 else self._join(parts)
            scans.append(Value("", column[0].dtype, expr=joined))
        return current, scans

    def _settle(self, states: Sequence[Value]) -> PrivateFunction:
        """Build the step; a size that a step changes becomes a symbol of each step."""
        self._dtypes = [state.dtype for state in states]
        self._dims = [list(state.shape) for state in states]
        while True:
            step = self._define_step()
            results = step.results[self._conditional : self._conditional + len(states)]
            changed = False
            for place, (dims, result) in enumerate(zip(self._dims, results, strict=True)):
                if result.dtype != self._dtypes[place]:
                    raise InvalidModel(
                        f"a loop's state is {self._dtypes[place]} before a step, {result.dtype} "
                        "after it"
                    )
                if result.ndim != len(dims):
                    raise UnsupportedOperator(
                        f"a loop's state changes its rank from {len(dims)} to {result.ndim}"
                    )
                for axis, size in enumerate(result.shape):
                    varies = not depends_only_on(dims[axis], self._visible)
                    if not varies and not self._builder.arithmetic.equal(dims[axis], size):
                        dims[axis] = self._builder.fresh_symbol("state")
                        changed = True
            if not changed:
                return step

    def _define_step(self) -> PrivateFunction:
        own = self._parameters()

        def run() -> list[Value]:
            states = [
                Value("", dtype, expr=var) for dtype, var in zip(self._dtypes, own, strict=True)
            ]
            condition, results, rows = self._body(self._index, states)
            if any(structure_of(value) != "tensor" for value in [*results, *rows]):
                raise UnsupportedOperator("a loop that makes sequences or optionals from tensors")
            self._rows = rows
            count = self._count()
            forever = condition.array is not None and bool(condition.array.reshape(-1)[0])
            if forever and count is None and self._limit() is None:
                raise InvalidModel(
                    "the loop has neither a trip count nor a condition: it never ends"
                )
            self._conditional = not forever or count is None
            running = [self._running(condition, self._index + 1)] if self._conditional else []
            return [*running, *results, *(Value("", r.dtype, expr=self._row(r)) for r in rows)]

        return self._builder.define_function(f"{self._title}_step", run, own, [self._index])

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
        rest = self._builder.declare_function(longest, f"{self._title}_rest")
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

        def run() -> list[Value]:
            call = builder.call(first, own, [self._index])
            head = builder.emit_tuple(call, self._title, self._types())
            if not self._conditional:
                return self._values(self._continue(second, head, offset))
            if self._rows:
                outer = head

                def longer() -> list[Value]:
                    inner = [Value("", dtype, expr=var) for (dtype, _), var in
                             zip(self._types(), outer, strict=True)]  # fmt: skip
                    mine = [builder.expression(builder.captured(value)) for value in inner]
                    return self._values(self._continue(second, mine, offset))

                joined = builder.define_function(f"{name}_joined", longer, chosen=[self._index])
                rest = builder.call(joined, (), [self._index])
            else:
                rest = builder.call(second, head[1:], [self._index + offset])
            chosen = builder.branch(head[0], rest, relax.Tuple(head))
            return self._values(builder.emit_tuple(chosen, self._title, self._types()))

        callee = None if declared is None else declared.callee
        return builder.define_function(name, run, own, [self._index], callee)

    def _continue(
        self, second: PrivateFunction, head: list[relax.Var], offset: int
    ) -> list[relax.Var]:
        """Run `second` on what the first part left, and join their rows."""
        states = len(self._dims)
        lead = int(self._conditional)
        call = self._builder.call(second, head[lead : lead + states], [self._index + offset])
        tail = self._builder.emit_tuple(call, self._title, self._types())
        rows = [
            self._join([before, after])
            for before, after in zip(head[lead + states :], tail[lead + states :], strict=True)
        ]
        return [*tail[: lead + states], *rows]

    # Types ------------------------------------------------------------------------------------

    def _parameters(self) -> list[relax.Var]:
        pairs = zip(self._dims, self._dtypes, strict=True)
        return [parameter(f"state_{n}", dims, dtype) for n, (dims, dtype) in enumerate(pairs)]

    def _types(self, count: int | None = None) -> _Types:
        """Return the types of what a function of this loop returns, None for each unknown size."""
        types: _Types = [("bool", [])] if self._conditional else []
        for dims, dtype in zip(self._dims, self._dtypes, strict=True):
            types.append((dtype, self._visible_dims(dims)))
        types += [(row.dtype, [count, *self._visible_dims(row.shape)]) for row in self._rows]
        return types

    def _visible_dims(self, dims: Sequence[Dim]) -> list[Dim | None]:
        return [dim if depends_only_on(dim, self._visible) else None for dim in dims]

    def _values(self, tensors: Sequence[relax.Var]) -> list[Value]:
        types = self._types()
        return [Value("", dtype, expr=v) for (dtype, _), v in zip(types, tensors, strict=True)]

    def _first(self, states: Sequence[Value]) -> tuple[list[relax.Expr], list[Dim]]:
        return [self._builder.expression(state) for state in states], [0]

    def _finish(self, call: relax.Expr, count: int | None) -> tuple[list[Value], list[Value]]:
        values = [
            Value("", dtype, expr=item)
            for (dtype, _), item in zip(
                self._types(count),
                self._builder.emit_tuple(call, self._title, self._types(count)),
                strict=True,
            )
        ][int(self._conditional) :]
        return values[: len(self._dims)], values[len(self._dims) :]

    # Conditions -------------------------------------------------------------------------------

    def _count(self) -> int | None:
        """Return the greatest number of steps if it is known."""
        limit = self._limit()
        if limit is None or limit.array is None:
            return None
        return max(int(limit.array.reshape(-1)[0]), 0)

    def _starts(self, start: Value | None, count: int | None) -> relax.Expr | None:
        """Return whether there is a first step; None if there surely is."""
        if start is None and (count is not None or self._limit() is None):
            return None
        known = Value.constant("", np.asarray(True))
        return self._builder.expression(self._running(start or known, 0))

    def _running(self, condition: Value, index: Dim) -> Value:
        """Return whether step `index` follows, given the condition that the last one left."""
        builder, limit = self._builder, self._limit()
        tensors: list[relax.Expr] = []
        sizes: list[Dim] = [index]
        always = condition.array is not None
        if condition.array is not None and not bool(condition.array.reshape(-1)[0]):
            return Value.constant("", np.asarray(False))
        if not always:
            tensors.append(self._flat(condition))
        bound = None if limit is None else limit.dims()
        if bound is not None:
            sizes.append(bound.reshape(-1)[0])
        elif limit is not None:
            tensors.append(self._flat(limit))

        def compute(*arguments: Any) -> te.Tensor:
            *given, dims = arguments
            terms = [] if always else [given[0](0)]
            if bound is not None:
                terms.append(prim(dims[0]) < prim(dims[1]))
            elif limit is not None:
                terms.append(prim(dims[0]) < given[-1](0).astype("int64"))
            result = terms[0] if len(terms) == 1 else tirx.all(*terms)
            return te.compute((), lambda: result, name="running")

        return Value.of_expr("", builder.emit_te(compute, *tensors, name="running", dims=sizes))

    def _flat(self, value: Value) -> relax.Expr:
        return self._builder.emit(
            R.reshape(self._builder.expression(value), relax.ShapeExpr([1])), "flat"
        )

    # Scan outputs -----------------------------------------------------------------------------

    def _row(self, value: Value) -> relax.Expr:
        """Return a tensor as the only row of another one."""
        dims = relax.ShapeExpr([1, *value.shape])
        return self._builder.emit(R.reshape(self._builder.expression(value), dims), "row")

    def _join(self, parts: Sequence[relax.Expr]) -> relax.Expr:
        """Concatenate rows, whose sizes are checked to agree where that is not known."""
        first = list(parts[0].ty.shape.values)
        aligned = [parts[0]]
        for part in parts[1:]:
            have = list(part.ty.shape.values)
            pairs = zip(have[1:], first[1:], strict=True)
            if not all(self._builder.arithmetic.equal(a, b) for a, b in pairs):
                dtype = str(part.ty.dtype.dtype)
                part = self._builder.match_tensor(part, [have[0], *first[1:]], dtype)
            aligned.append(part)
        return self._builder.emit(R.concat(aligned, 0), "rows")

    def _empty(self, row: Value) -> Value:
        """Return no rows; sizes that only a step could tell are zero."""
        dims = [0 if dim is None else dim for dim in self._visible_dims(row.shape)]
        if all(is_static(dim) for dim in dims):
            return Value.constant("", np.zeros((0, *dims), numpy_dtype(row.dtype)))
        dtype = container(row.dtype)
        full = R.full(relax.ShapeExpr([0, *dims]), relax.const(0, dtype), dtype)
        return Value("", row.dtype, expr=self._builder.emit(full, "no_rows"))
