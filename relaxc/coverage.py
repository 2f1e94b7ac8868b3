"""Which operators a model uses and how each is imported, found without compiling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from frontends.onnx.load_model import load_model
from frontends.onnx.registry import normalize_domain
from frontends.onnx.support import OperatorUse, survey_operators

COLUMNS = ("operator", "domain", "opset", "nodes", "imported as", "")
_SHOWN_NODES = 3


def model_coverage(path: str | Path) -> list[OperatorUse]:
    """Return how every operator of an ONNX file is imported.

    Raises:
        InvalidModel: If the file is missing or malformed.
    """
    model, file = load_model(path)
    opsets = {normalize_domain(entry.domain): entry.version for entry in model.opset_import}
    return survey_operators(model, opsets, file)


def coverage_rows(uses: Sequence[OperatorUse]) -> list[tuple[str, ...]]:
    """Return one row of `COLUMNS` for each operator; unsupported ones name nodes and reason."""
    rows: list[tuple[str, ...]] = []
    for use in uses:
        nodes = ", ".join(use.nodes[:_SHOWN_NODES]) + (", ..." * (len(use.nodes) > _SHOWN_NODES))
        note = f"{nodes}: {use.reason}" if use.reason else nodes
        rows.append(
            (
                *(use.name, use.domain or "ai.onnx", str(use.opset), str(len(use.nodes))),
                *(use.route, note if use.route == "unsupported" else ""),
            )
        )
    return rows
