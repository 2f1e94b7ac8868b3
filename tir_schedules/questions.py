"""What cost models decide, as questions to which a measurement may know a better answer.

A cost model's choice is a question with a few options, its own choice first. `decide` takes that,
unless `Machine.answers` holds what was measured on this processor (`relax_passes.tune_kernels`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Protocol

from tir_schedules.machine import Machine


class Question(Hashable, Protocol):
    """What is to be decided; equal questions have equal options, and `repr` tells them apart."""

    def options(self, machine: Machine) -> Sequence[Any]:
        """Return the answers worth a measurement, the cost model's choice first."""
        ...


_asked: ContextVar[dict[Question, Sequence[Any]] | None] = ContextVar("asked", default=None)


def decide(question: Question, machine: Machine) -> Any:
    """Answer a question as measured; where nothing was, as the cost model does."""
    options = _options(question, machine)
    asked = _asked.get()
    if asked is not None:
        asked[question] = options
    measured = dict(machine.answers).get(question, options[0])  # None may be an answer
    return measured if measured in options else options[0]


@lru_cache(maxsize=1024)  # the layers of a network ask the same over and over
def _options(question: Question, machine: Machine) -> Sequence[Any]:
    return question.options(machine)


@contextmanager
def record_questions() -> Iterator[dict[Question, Sequence[Any]]]:
    """Collect the questions that are asked within, in their order, each with its options."""
    asked: dict[Question, Sequence[Any]] = {}
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)
