"""The options of the torch.compile backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from relaxc.errors import InvalidInput

MODES = (None, "default", "max-autotune")


@dataclass(frozen=True)
class BackendOptions:
    """What `torch.compile(options={...})` may say.

    Attributes:
        target, precision, threads, debug, passes, dump_dir: As `relaxc.compile` takes them.
        strict: Raise where a graph cannot be compiled, instead of leaving it to eager.
        freeze: Take parameters as constants: weights are packed and folded once, and the graph is
            compiled anew when one has changed. torch does not count a change made through `.data`:
            it is seen by a sample of the elements, which a few in a long tensor may escape.
        cache_dir: Folder that keeps compiled graphs from process to process; None keeps none.
    """

    target: Any = "llvm"
    precision: str = "float32"
    threads: int | None = None
    debug: bool = False
    passes: Any = None
    dump_dir: str | Path | None = None
    strict: bool = False
    freeze: bool = False
    cache_dir: str | Path | None = None

    def compile_options(self) -> dict[str, Any]:
        """Return what `relaxc.compile` takes."""
        names = ("target", "precision", "threads", "debug", "passes", "dump_dir")
        return {name: getattr(self, name) for name in names}


def read_options(mode: Any, options: Mapping[str, Any] | None) -> BackendOptions:
    """Read `mode=` and `options=` of `torch.compile`.

    Raises:
        InvalidInput: Naming the option.
    """
    if mode not in MODES:
        raise InvalidInput(f"unknown mode {mode!r}, expected one of {MODES[1:]}")
    chosen = BackendOptions(freeze=mode == "max-autotune")
    given = dict(options or {})
    known = {field.name for field in fields(BackendOptions)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidInput(f"unknown option {unknown[0]!r}, expected some of {sorted(known)}")
    for name in ("strict", "freeze", "debug"):
        if name in given and not isinstance(given[name], bool):
            raise InvalidInput(f"option {name!r} must be True or False, got {given[name]!r}")
    from relaxc.options import check_options, prepare_dump_dir

    chosen = replace(chosen, **given)
    check_options(None, chosen.precision, None, chosen.threads, chosen.passes)
    prepare_dump_dir(chosen.dump_dir)
    if not isinstance(chosen.cache_dir, str | os.PathLike | None):
        raise InvalidInput(f"option 'cache_dir' must be a path, got {chosen.cache_dir!r}")
    _check_target(chosen)
    return chosen


def _check_target(options: BackendOptions) -> None:
    """Refuse a target whose code cannot take the tensors of this process.

    Raises:
        InvalidInput: If it is unknown, or of another kind than the CPU's.
    """
    from relaxc.targets import resolve_target

    try:
        target = resolve_target(options.target, options.threads or 1)
    except InvalidInput as fault:
        raise InvalidInput(f"option 'target': {fault.message}") from fault
    if target.kind.name != "llvm":
        raise InvalidInput(
            "option 'target': torch.compile hands over tensors of the CPU, for which there is "
            f"'llvm', got {target.kind.name!r}"
        )
