"""Quick tuning: answers to the cost models' questions, measured on this machine and kept."""

from __future__ import annotations

from relax_passes.tuning.answer_store import AnswerStore
from relax_passes.tuning.session import TuningSession

__all__ = ["AnswerStore", "TuningSession"]
