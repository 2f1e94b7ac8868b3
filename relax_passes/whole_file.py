"""Write a file all or nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(text: str, path: Path) -> None:
    """Write a file beside its place, of folders that need not exist yet, and rename it.

    Whoever reads `path`, in this process or another, finds what was there before or all of `text`.

    Raises:
        OSError: If it cannot be written; nothing of it is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder) / path.name
        temporary.write_text(text)
        os.replace(temporary, path)
