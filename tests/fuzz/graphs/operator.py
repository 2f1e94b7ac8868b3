"""What the fuzzer knows of an operator: its type rule, and how it is written and computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tests.fuzz.graphs.recipe import Attributes, TensorType, Type
from tests.fuzz.graphs.sizes import Shape

if TYPE_CHECKING:
    from tests.fuzz.graphs.draw import Draw


class Sizes(Protocol):
    """Gives a shape in the form of what is being made: tirx expressions, or numbers."""

    def __call__(self, shape: Shape) -> Sequence[Any]: ...


Infer = Callable[[Sequence[Any], Attributes], Type | None]
Propose = Callable[["Draw"], tuple[Sequence[int], dict[str, Any]] | None]


@dataclass(frozen=True)
class Operator:
    """One kind of step.

    Args:
        infer: Returns the result's type, None if these operands are not legal.
        relax: `relax(sizes, arguments, attributes)` returns the Relax expression.
        numpy: The same in NumPy, on float64 arrays where the type is a float.
        propose: Chooses operands and attributes; None if there are none.
        onnx: `onnx(nodes, names, attributes, result type)` adds nodes and returns the names of
            the results; None where ONNX has no such operator.
        weight: How often it is proposed.
    """

    infer: Infer
    relax: Callable[[Sizes, Sequence[Any], Attributes], Any]
    numpy: Callable[[Sizes, Sequence[Any], Attributes], Any]
    propose: Propose
    onnx: Callable[..., Any] | None = None
    weight: float = 1.0


OPERATORS: dict[str, Operator] = {}


def add(name: str, operator: Operator) -> None:
    """Put an operator into the table."""
    assert name not in OPERATORS, name
    OPERATORS[name] = operator


def is_tensor(kind: Type, *dtypes: str) -> bool:
    """Tell whether a type is a tensor, of one of the dtypes if any are given."""
    return isinstance(kind, TensorType) and (not dtypes or kind.dtype in dtypes)


def float_array(values: np.ndarray) -> np.ndarray:
    """Return floats in double precision, other arrays as they are."""
    return values.astype("float64") if values.dtype.kind == "f" else values
