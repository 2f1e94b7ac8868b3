"""Read buffers from a CSV file with the columns id, lower, upper and size."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

_NUMBERS = ("lower", "upper", "size")


def read_buffers(path: str | Path) -> list[tuple[int, int, int]]:
    """Return (lower, upper, size) of each row: first step, step after the last, bytes.

    Columns may stand in any order; others, such as `id`, are for the reader. Blank lines count as
    nothing.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no such table; the text names the line and the column.
    """
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            return list(_rows(csv.DictReader(file, skipinitialspace=True)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"not a CSV file: {error}") from error


def _rows(reader: csv.DictReader[str]) -> Iterator[tuple[int, int, int]]:
    columns = [name.strip() for name in reader.fieldnames or ()]
    missing = [name for name in _NUMBERS if name not in columns]
    if missing:
        raise ValueError(f"no column {', '.join(missing)} in the first line, which has {columns}")
    reader.fieldnames = columns
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num}: not {len(columns)} values")
        lower, upper, size = (_number(row[name], name, reader.line_num) for name in _NUMBERS)
        if lower >= upper or size < 0:
            raise ValueError(f"line {reader.line_num}: needs lower < upper and size >= 0")
        yield lower, upper, size


def _number(text: str, column: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"line {line}: {column} is {text!r}, not an integer") from None
