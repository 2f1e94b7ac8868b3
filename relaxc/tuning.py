"""`compile(tune="quick")`: what a tuning run needs to know about this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm.target import Target

from relaxc.compatibility import installed_tvm_version, isa_features
from relaxc.errors import InvalidInput
from relaxc.processor_name import processor_name
from relaxc.thread_pool import use_threads

if TYPE_CHECKING:
    from relax_passes.tuning import TuningSession

_FOLDER = "RELAXC_TUNING_CACHE"


def tuning_folder() -> Path:
    """Return where answers are kept: RELAXC_TUNING_CACHE, or ~/.cache/relaxc/tuning."""
    return Path(os.environ.get(_FOLDER) or "~/.cache/relaxc/tuning").expanduser()


def tuning_session(tune: Any, target: Target, threads: int) -> TuningSession | None:
    """Return the session of a compilation that is to be tuned, else None.

    The calling thread's parallel regions run on `threads` from here on, as the model's will.

    Raises:
        InvalidInput: If what is compiled for is not this machine, which alone can be measured.
    """
    if tune is None:
        return None
    from relax_passes.tuning import AnswerStore, TuningSession

    _check_is_here(target)
    use_threads(threads)
    return TuningSession(AnswerStore(tuning_folder(), _store_key(target, threads)))


def _check_is_here(target: Target) -> None:
    from tir_schedules.machine import host_target

    if target.kind.name != "llvm":
        raise InvalidInput(f"tune='quick' measures on the CPU, not for {target.kind.name!r}")
    beyond = set(isa_features(target)) - set(isa_features(host_target()))
    if beyond or str(target.attrs.get("mtriple", "")) not in ("", _own_triple()):
        raise InvalidInput(
            "tune='quick' measures on this machine, which cannot run code for "
            f"{target.attrs.get('mcpu', target)}"
        )


def _own_triple() -> str:
    from tvm.target import codegen

    return str(codegen.llvm_get_system_triple())


def _store_key(target: Target, threads: int) -> str:
    import relaxc

    facts = {
        "processor": processor_name(),
        "target": str(target.attrs.get("mcpu", "")),
        "features": " ".join(isa_features(target)),
        "threads": threads,
        "relaxc": relaxc.__version__,
        "tvm": installed_tvm_version(),
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items())
