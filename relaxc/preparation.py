"""Inputs that are prepared, by a function of the compiled model, before the model runs.

Parameters that are inputs are packed and folded as constants are, but at run time. A caller who
knows when they change calls `prepare` only then (`relax_passes.lift_preparation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from relax_passes.analysis.fixed_values import PREPARE, TAKES


@dataclass(frozen=True)
class Preparation:
    """Which of a model's inputs, by number, its two functions take.

    Attributes:
        takes: Those of `prepare`.
        rest: Those of `main`; the results of `prepare` follow them.
    """

    takes: tuple[int, ...]
    rest: tuple[int, ...]

    @staticmethod
    def of(module: tvm.IRModule) -> Preparation | None:
        """Read it from a module after the last phase; None where no function was split off."""
        functions = {var.name_hint: func for var, func in module.functions.items()}
        if PREPARE not in functions or TAKES not in (functions[PREPARE].attrs or {}):
            return None
        prepare, main = (functions[name].attrs[TAKES] for name in (PREPARE, "main"))
        return Preparation(tuple(map(int, prepare)), tuple(map(int, main)))

    @staticmethod
    def from_json(data: dict[str, Any] | None) -> Preparation | None:
        """Rebuild it from what `dataclasses.asdict` gives."""
        return None if data is None else Preparation(tuple(data["takes"]), tuple(data["rest"]))


def results_of(prepared: Any) -> list[Any]:
    """Return what `prepare` returned as a list: a single result is no tuple."""
    single = hasattr(prepared, "shape")
    return [prepared] if single else list(prepared)


def prepared_anew(
    preparation: Preparation, prepare: Callable[..., Any], main: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function of all inputs that prepares them in each call."""

    def run(*inputs: Sequence[Any]) -> Any:
        prepared = results_of(prepare(*(inputs[number] for number in preparation.takes)))
        return main(*(inputs[number] for number in preparation.rest), *prepared)

    return run
