"""The benchmark's parts that need no measurement: inputs, rows that fail, the table."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import core_share, run, zoo
from benchmarks.example_feeds import example_feeds
from benchmarks.markdown_table import render_markdown


def test_every_built_model_has_an_entry():
    pytest.importorskip("transformers")
    assert set(zoo._catalogue()) == set(zoo.BUILT)


def test_unknown_models_are_refused():
    with pytest.raises(KeyError, match="no model 'resnet19'"):
        zoo.onnx_path("resnet19")
    with pytest.raises(SystemExit):
        run.main(["--models", "resnet19"])


def test_an_exported_file_is_taken_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXC_ZOO_CACHE", str(tmp_path))
    (tmp_path / "resnet18.onnx").write_bytes(b"as it was")
    assert zoo.onnx_path("resnet18").read_bytes() == b"as it was"


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setenv("RELAXC_ZOO_CACHE", str(tmp_path))

    def fail(name):
        raise ValueError("activations are not finite")

    monkeypatch.setattr(zoo, "torch_model", fail)
    with pytest.raises(ValueError, match="not finite"):
        zoo.onnx_path("resnet18")
    assert not list(tmp_path.iterdir())


def test_activations_that_are_not_sane_are_refused():
    torch = pytest.importorskip("torch")

    class Bad(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    ones = (torch.ones(2),)
    zoo._check_activations(Bad(2.0), ones, "m")
    with pytest.raises(ValueError, match="infinities or NaNs"):
        zoo._check_activations(Bad(float("inf")), ones, "m")
    with pytest.raises(ValueError, match="2 denormals"):
        zoo._check_activations(Bad(1e-40), ones, "m")


def test_feeds_suit_the_inputs(tmp_path: Path):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, 4]),
        helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, [1, 4]),
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 4]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    node = helper.make_node("Identity", ["x"], ["y"])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", inputs, [output])), path)
    feeds = example_feeds("m", path)
    assert feeds["x"].shape == (1, 3) and feeds["x"].dtype == np.float32
    assert feeds["attention_mask"].all() and not feeds["token_type_ids"].any()
    assert feeds["input_ids"].dtype == np.int64 and feeds["input_ids"].max() < 256


def test_a_row_whose_process_dies_says_so(monkeypatch):
    monkeypatch.setattr(run.sys, "executable", "false")
    options = argparse.Namespace(peers=["onnxruntime"], repeats=1, budget=1.0)
    row = run._measure_in_worker("resnet18", 1, options)
    assert not row["accurate"] and row["failure"].startswith("exit code 1")


def test_the_table_shows_ratios_failures_and_the_arena():
    engine = {"median_ms": 10.0, "relative_error": 2e-6}
    compiled = {
        "seconds": 3.0,
        "phase_seconds": {"lower": 1.0, "schedule": 2.0, "fuse": 0.01},
        "kernels": 12,
        "layout_transforms": None,
        "arena_naive": 8e6,
        "arena_tvm": None,
        "arena": 2e6,
        "arena_bound": 2e6,
    }
    good = {
        "model": "a",
        "threads": 1,
        "failure": "",
        "engines": {"relaxc": engine, "onnxruntime": {"median_ms": 12.0}},
        "compile": compiled,
    }
    bad = {"model": "b", "threads": 2, "failure": "it broke", "engines": {}}
    text = render_markdown(
        {
            "date": "2026-01-01",
            "cpu": "some CPU",
            "cores": 2,
            "python": "3.11",
            "versions": {"numpy": "2.0", "torch": None},
            "rows": [good, bad],
        }
    )
    assert "| a | 1 | 10.00 | 12.00 (1.20x) | 2.0e-06 |" in text
    assert "| b | 2 | failed: it broke | - | - |" in text
    assert "| a | 1 | 3.0 | schedule 2.0, lower 1.0 | 12 | - |" in text
    assert "| a | 1 | 8.00 | - | 2.00 | 2.00 | 1.000 |" in text
    assert "torch" not in text


def test_a_measuring_process_takes_a_session_of_its_own():
    code = "import os; from benchmarks.core_share import claim_cores; print(claim_cores())"
    code += "; print(os.getsid(0) == os.getpid())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    raised, alone = done.stdout.split()
    assert alone == "True"
    share = Path("/proc/self/autogroup")
    if share.exists() and os.geteuid() == 0:
        assert raised == "True"


def test_no_share_of_cores_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(core_share, "_AUTOGROUP", tmp_path / "missing" / "autogroup")
    monkeypatch.setattr(core_share.os, "getsid", lambda _: core_share.os.getpid())
    assert not core_share.claim_cores()


def test_trained_files_are_found_without_importing_their_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the file is read, so what the package needs to run need not be installed."""
    package = tmp_path / "half_installed"
    package.mkdir()
    (package / "__init__.py").write_text("import a_module_that_is_nowhere\n")
    (package / "model.onnx").write_bytes(b"")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"there": ("half_installed", "model.onnx"), "lost": ("not_installed", "model.onnx")}
    monkeypatch.setattr(zoo, "TRAINED", names)
    assert zoo.onnx_path("there") == package / "model.onnx"
    with pytest.raises(FileNotFoundError, match="which is not installed"):
        zoo.onnx_path("lost")
