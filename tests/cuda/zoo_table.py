"""What `tests.cuda.zoo` found, as a table that is checked in, and what docs/cuda.md shows of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from benchmarks.markdown_table import table_line, table_lines

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
_NAME = "cuda-zoo.md"
_TITLES = {
    "resnet50": "ResNet-50",
    "mobilenet_v2": "MobileNetV2 (depthwise: windows in registers)",
    "bert_base": "BERT-base",
    "gpt2": "GPT-2",
    "llama_small": "Llama (small)",
    "vit_b16": "ViT-B/16",
    "swin_tiny": "Swin-T",
    "convnext_tiny": "ConvNeXt-T (depthwise)",
}


@dataclass(frozen=True)
class Row:
    """A model compiled for one architecture in one precision; `tiled` in percent.

    `tiled` is the share of the arithmetic in pipelined tiles, `registers` the most of any kernel.
    """

    model: str
    precision: str
    arch: str
    kernels: int
    calls: int
    launches: int
    tiled: float
    fallback: int
    unscheduled: int
    spilling: int
    registers: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What was compiled."""
        return self.model, self.precision, self.arch

    @property
    def is_well(self) -> bool:
        """Whether every kernel has a schedule of its own and keeps its registers."""
        return not (self.fallback or self.unscheduled or self.spilling)

    def line(self) -> str:
        """Return the row of the table."""
        return table_line([str(value) for value in astuple(self)])


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a table, none where there is no file."""
    if not path.exists():
        return []
    kinds = [{"int": int, "float": float, "str": str}[str(each.type)] for each in fields(Row)]
    rows = []
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(kinds) and re.fullmatch(r"sm_\d+", cells[2]):
            rows.append(Row(*(kind(cell) for kind, cell in zip(kinds, cells, strict=True))))
    return rows


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return both in order, the newer row where a model was compiled again."""
    order = list(_TITLES)
    rows = {row.key: row for row in [*old, *new]}
    return sorted(rows.values(), key=lambda r: (order.index(r.model), r.precision, r.arch))


def write_rows(path: Path, rows: Sequence[Row], nvcc: str) -> None:
    """Write the table, headed by what made it."""
    header = [each.name for each in fields(Row)]
    cells = [[str(value) for value in astuple(row)] for row in rows]
    lines = [
        "# The zoo cross-compiled for CUDA",
        "",
        f"`python -m tests.cuda.zoo`; {nvcc}. No GPU takes part. Columns: distinct kernels,",
        "kernels that a run calls, launches of a run, percent of the arithmetic in pipelined",
        "tiles; kernels left to the fallback, without a schedule, and that spill; most registers",
        "of a thread.",
        "",
        *table_lines(header, cells),
    ]
    path.write_text("\n".join(lines) + "\n")


def newest() -> Path:
    """Return the newest table that is checked in."""
    return max(RESULTS.glob(f"*-{_NAME}"))


def path_of(date: str) -> Path:
    """Return where the table of a day, such as 2026-11-30, goes."""
    return RESULTS / f"{date}-{_NAME}"


def shown(rows: Sequence[Row]) -> list[str]:
    """Return the table of docs/cuda.md: a line for each model, over all it was compiled for."""
    header = ["model", "compiled", "kernels a run calls", "launches"]
    header += ["arithmetic in pipelined tiles", "most registers"]
    lines = []
    for name, title in _TITLES.items():
        of_model = [row for row in rows if row.model == name]
        if of_model:
            tiled = _span([row.tiled for row in of_model])
            calls = _span([row.calls for row in of_model])
            launches = _span([row.launches for row in of_model])
            most = str(max(row.registers for row in of_model))
            lines.append([title, str(len(of_model)), calls, launches, f"{tiled}%", most])
    return table_lines(header, lines)


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
