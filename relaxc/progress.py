"""Show which phase a long compilation is in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # (phase, index from 1, total)


@contextmanager
def phase_progress(progress: bool | Progress | None) -> Iterator[Progress]:
    """Yield a callback that shows the phase it is called with.

    Args:
        progress: True shows a bar on stderr, False shows nothing, None shows it when stderr is a
            terminal, and a function is called itself as `progress(phase, index, total)`.
    """
    if callable(progress):
        yield progress
        return
    if progress is None:
        progress = sys.stderr is not None and sys.stderr.isatty()
    if not progress:
        yield lambda phase, index, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description:<14}"), BarColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("import", total=None)

        def show(phase: str, index: int, total: int) -> None:
            bar.update(task, description=phase, completed=index - 1, total=total)

        yield show
