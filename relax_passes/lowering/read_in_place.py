"""Which operands a heavy kernel reads in place: behind transposes and slices of constant bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import relax, te

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.view_before_slice import slice_of_one_axis
from tir_schedules.operand_view import OperandView, sliced, transposed

LookUp = Callable[[relax.Expr], relax.Expr]
View: TypeAlias = te.Tensor | OperandView


@dataclass(frozen=True)
class InPlace:
    """An operand as a view of `source`; `steps` turn the source into it, the first one last."""

    source: relax.Expr
    steps: tuple[Callable[[Any], OperandView], ...] = ()

    def of(self, tensor: te.Tensor) -> View:
        """Return the operand as a view of `tensor`, the source in a computation."""
        view: View = tensor
        for step in reversed(self.steps):
            view = step(view)
        return view


def read_in_place(look_up: LookUp, value: relax.Expr) -> InPlace:
    """Look through transposes that keep the last axis last, and through slices.

    The last axis stays dense, so that kernels that read vectors along it still do.
    """
    steps: list[Callable[[Any], OperandView]] = []
    while True:
        call = look_up(value)
        name = operator_name(call)
        if name == "permute_dims" and axes_of(call)[-1] == call.ty.ndim - 1:
            steps.append(transpose_step(axes_of(call)))
        elif name == "strided_slice" and slice_of_one_axis(call) is not None:
            axis, begin, end = slice_of_one_axis(call) or (0, 0, 0)
            steps.append(_slice(axis, begin, end))
        else:
            return InPlace(value, tuple(steps))
        value = call.args[0]


def transpose_step(order: list[int]) -> Callable[[Any], OperandView]:
    """Return the step from a tensor to its transpose with the axes in `order`."""
    return lambda source: transposed(source, order)


def _slice(axis: int, begin: int, end: int) -> Callable[[Any], OperandView]:
    return lambda source: sliced(source, axis, begin, end)
