"""Four small architectures by both paths; `make models-torch` runs all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.conformance.torch_models.architectures import ARCHITECTURES  # noqa: E402
from tests.conformance.torch_models.run_model import run_model  # noqa: E402


@pytest.mark.parametrize("name", ["bert", "llama", "resnet", "vit"])
def test_both_paths_give_eagers_numbers(name: str) -> None:
    results = run_model(name)
    assert all(result.passes for result in results.values()), results


def test_there_are_thirty_architectures() -> None:
    assert len(ARCHITECTURES) >= 30
