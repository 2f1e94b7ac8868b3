"""Kernels and small models on the emulated device: one process runs them all."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.emulated_process import KERNELS, MODELS

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux",
    reason="the emulator switches fibers in x86-64 assembly and fakes libcuda.so",
)


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cuda.emulated_process"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def test_kernels_agree_with_numpy_in_both_thread_orders(runs: list[dict[str, Any]]) -> None:
    """Every access is checked: no race, no read of what nobody wrote, none outside a buffer."""
    errors = {(r["name"], r["order"]): r["error"] for r in runs if r["name"] in KERNELS}
    assert set(errors) == {(name, order) for name in KERNELS for order in ("fwd", "rev")}
    assert {run: e for run, e in errors.items() if not e < 1e-5} == {}


def test_models_agree_with_the_processor(runs: list[dict[str, Any]]) -> None:
    errors = {r["name"]: r["error"] for r in runs if r["name"] in MODELS}
    assert set(errors) == set(MODELS)
    assert {name: e for name, e in errors.items() if not e < (2e-2 if "16" in name else 1e-4)} == {}
    rules = {r["name"]: r["rules"] for r in runs if r["name"] in MODELS}
    assert "cuda_core_matmul" in rules["bert_layer"]
    assert "tensor_core_matmul" in rules["bert_layer_float16"]
    assert {"cuda_core_matmul", "elementwise"} == set(rules["residual_block"])
    assert {"tensor_core_matmul", "elementwise"} == set(rules["residual_block_float16"])
    assert {"tensor_core_matmul"} == set(rules["deep_product_float16"])
    assert all("attention" in rules[name] for name in rules if name.startswith("bert"))


def test_what_kernels_keep_between_them_lies_in_the_arena(runs: list[dict[str, Any]]) -> None:
    """The sums of slices: a graph has their place, which no later model can take from it."""
    fired = {r["name"]: r["fired"] for r in runs if r["name"] in MODELS}
    assert "hand_over_workspaces" in fired["deep_product_float16"]
    assert "hand_over_workspaces" not in fired["residual_block"]


def test_a_quantized_network_gives_the_bytes_of_the_processor(runs: list[dict[str, Any]]) -> None:
    """Each product is one kernel with what follows it; only the image and the rows are moved."""
    (found,) = (r for r in runs if r["name"] == "quantized")
    assert found["error"] == 0
    assert found["distinct"] > 50
    products = [calls for rule, calls in found["kernels"] if rule in ("byte_matmul", "byte_rows")]
    assert sum(products) == 3


def test_the_second_run_of_a_model_launches_graphs(runs: list[dict[str, Any]]) -> None:
    """BERT: the kernels between those that read the input, and those behind them."""
    graphs = {r["name"]: r["graphs"] for r in runs if r["name"] in MODELS}
    assert graphs == {name: 2 if name.startswith("bert") else 1 for name in MODELS}
