"""What a graph asserts: conditions that must hold when the model runs, or the run fails.

No result depends on an assert, and a function without effects computes only what its results need.
So a result is made to depend on every check of its function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tvm import relax, te

from frontends.computations.checked_values import NAME as CHECK
from frontends.computations.checked_values import checked_values

EmitKernel = Callable[..., relax.Expr]


class Requirements:
    """The conditions of the function that is being built, each checked by a kernel of its own."""

    def __init__(self, te: EmitKernel, emit: Callable[[relax.Expr], relax.Expr]) -> None:
        """`te` emits the kernel of a tensor expression, `emit` an operator."""
        self._te, self._emit = te, emit
        self._checked: list[relax.Expr] = []

    def add(self, condition: relax.Expr, message: str) -> None:
        """Have a run fail with a message unless a condition holds.

        Args:
            condition: One element, of any dtype; it holds if it is not 0.
            message: Text of the error.
        """
        if condition.ty.dtype != "bool":
            zero = relax.const(0, condition.ty.dtype)
            condition = self._emit(relax.op.not_equal(condition, zero))
        number = self._emit(relax.op.astype(self._emit(relax.op.reshape(condition, [1])), "int32"))

        def compute(given: te.Tensor) -> te.Tensor:
            return checked_values(given, 0, message)

        self._checked.append(self._te(compute, number, name=CHECK))

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._checked)

    def hold(self, result: relax.Expr) -> relax.Expr:
        """Return a result of the function, computed only if what is required holds."""
        flags = [self._emit(relax.op.not_equal(c, relax.const(0, "int32"))) for c in self._checked]
        every = functools.reduce(lambda p, q: self._emit(relax.op.logical_and(p, q)), flags)
        one = self._emit(relax.op.reshape(every, []))
        return self._emit(relax.op.where(one, result, relax.const(0, result.ty.dtype)))

    @contextmanager
    def of_function(self) -> Iterator[None]:
        """Collect the conditions of another function apart, while it is built."""
        outer, self._checked = self._checked, []
        try:
            yield
        finally:
            self._checked = outer
