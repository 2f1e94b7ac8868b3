"""Loop and Scan on ONNX values: known conditions, sequences, stored types; else a `Repetition`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relax

from frontends.control_flow.repetition import Limit, Repetition, Step, known_count
from frontends.control_flow.rows import join_rows, one_row
from frontends.control_flow.unrolled import MOST_NODES, unrolled
from frontends.dims import Dim
from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.graph_builder import GraphBuilder
from frontends.onnx.symbols import sanitize
from frontends.onnx.value import Value, structure_of, tensors_of, with_tensors

# body(index, states) -> (condition, states, scan outputs)
Body = Callable[[Dim, list[Value]], tuple[Value, list[Value], list[Value]]]


class ValueLoop:
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
        self._builder, self._title, self._body, self._nodes = builder, title, body, nodes
        self._limit_value = limit
        self._row_dtypes: list[str] = []

    def run(self, states: Sequence[Value], start: Value | None) -> tuple[list[Value], list[Value]]:
        """Emit the loop; return the last states and the scan outputs, rows along axis 0.

        Args:
            states: What the first step is given.
            start: Condition of the first step; None if it runs if the limit allows one.
        """
        first = True if start is None else self._known_or_tensor(start)
        count = 0 if first is False else known_count(self._limit())
        structured = any(structure_of(state) != "tensor" for state in states)
        if count and first is True and (structured or count * self._nodes <= MOST_NODES):
            done = self._unroll(count, states)
            if done is not None:
                return done
        if structured:
            return self._run_on_elements(states, first)
        return self._repeat(states, first)

    def _unroll(
        self, count: int, states: Sequence[Value]
    ) -> tuple[list[Value], list[Value]] | None:
        def step(index: int, current: list[Value]) -> tuple[bool | None, list[Value], list[Value]]:
            condition, after, rows = self._body(index, current)
            return known_condition(condition), after, rows

        done = unrolled(count, states, step)
        if done is None:
            return None
        current, columns = done
        functions, scans = self._builder.functions, []
        for column in columns:
            if any(structure_of(row) != "tensor" for row in column):
                raise UnsupportedOperator("a scan output that is a sequence or an optional")
            parts = [one_row(functions, self._builder.expression(row)) for row in column]
            scans.append(Value("", column[0].dtype, expr=join_rows(functions, parts)))
        return current, scans

    def _run_on_elements(
        self, states: Sequence[Value], start: bool | relax.Expr
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
        final, scans = self._repeat(tensors_of(states), start)
        return with_tensors(states, iter(final)), scans

    def _repeat(
        self, states: Sequence[Value], start: bool | relax.Expr
    ) -> tuple[list[Value], list[Value]]:
        builder = self._builder
        dtypes = [state.dtype for state in states]

        def step(index: Dim, current: list[relax.Expr]) -> Step:
            with builder.function_scope():
                given = [
                    Value("", dtype, expr=expr) for dtype, expr in zip(dtypes, current, strict=True)
                ]
                condition, after, rows = self._body(index, given)
                self._check(dtypes, after, rows)
                self._row_dtypes = [row.dtype for row in rows]
                return Step(
                    self._known_or_tensor(condition),
                    [builder.expression(state) for state in after],
                    [builder.expression(row) for row in rows],
                )

        loop = Repetition(builder.functions, sanitize(self._title), step, self._limit)
        given = [builder.expression(state) for state in states]
        final, scans = loop.run(given, start)
        untouched = all(before is after for before, after in zip(given, final, strict=True))
        return (
            list(states)
            if untouched
            else [Value("", dtype, expr=e) for dtype, e in zip(dtypes, final, strict=True)],
            [Value("", dtype, expr=e) for dtype, e in zip(self._row_dtypes, scans, strict=True)],
        )

    def _check(self, dtypes: Sequence[str], after: Sequence[Value], rows: Sequence[Value]) -> None:
        if any(structure_of(value) != "tensor" for value in [*after, *rows]):
            raise UnsupportedOperator("a loop that makes sequences or optionals from tensors")
        for before, state in zip(dtypes, after, strict=True):
            if state.dtype != before:
                raise InvalidModel(
                    f"a loop's state is {before} before a step, {state.dtype} after it"
                )

    def _known_or_tensor(self, condition: Value) -> bool | relax.Expr:
        known = known_condition(condition)
        return self._builder.expression(condition) if known is None else known

    def _limit(self) -> Limit | None:
        with self._builder.function_scope():
            value = self._limit_value()
            if value is None:
                return None
            dims = value.dims()
            if dims is not None:
                return Limit(size=dims.reshape(-1)[0])
            return Limit(tensor=self._builder.expression(value))


def known_condition(condition: Value) -> bool | None:
    """Return a condition that is known while importing, None for one that only the run tells."""
    return None if condition.array is None else bool(condition.array.reshape(-1)[0])
