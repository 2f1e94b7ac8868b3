"""`compile(tune="quick")` from the front door: what it takes, reports and keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import relaxc
from relaxc.cli import main
from relaxc.errors import InvalidInput
from relaxc.tuning import tuning_folder
from tests.relax_passes.pass_checks import module, normal, weights
from tests.relaxc.small_models import affine_relu


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep answers of a test to itself."""
    monkeypatch.setenv("RELAXC_TUNING_CACHE", str(tmp_path / "answers"))
    return tmp_path / "answers"


def _product() -> tvm.IRModule:
    return module((96, 64), lambda _, x: relax.op.matmul(x, weights(64, 80)))


def test_a_tuned_model_computes_the_same_and_says_what_it_gained(folder: Path) -> None:
    plain = relaxc.compile(_product(), threads=1)
    tuned = relaxc.compile(_product(), threads=1, tune="quick")
    assert len(list(folder.iterdir())) == 1
    facts = tuned.report.metrics["tuning"]
    assert facts["measured"] + facts["left_out"] >= 1 and facts["from_store"] == 0
    assert "tune_kernels" in str(tuned.report)
    x = normal(96, 64)
    np.testing.assert_allclose(tuned(x), plain(x), rtol=1e-5, atol=1e-4)
    again = relaxc.compile(_product(), threads=1, tune="quick").report.metrics["tuning"]
    assert (again["from_store"], again["measured"]) == (facts["measured"], 0)


def test_answers_are_for_a_number_of_threads(folder: Path) -> None:
    for threads in (1, 2):
        relaxc.compile(_product(), threads=threads, tune="quick")
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_told_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXC_TUNING_CACHE", str(tmp_path / "file"))
    report = relaxc.compile(_product(), threads=1, tune="quick").report
    assert any("cannot be" in reason for _, _, reason in report.declined)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tune": "slow"}, "unknown tune 'slow'"),
        ({"tune": True}, "unknown tune True"),
        ({"tune": "quick", "target": {"kind": "cuda", "arch": "sm_80"}}, "on the CPU"),
        (
            {
                "tune": "quick",
                "target": {"kind": "llvm", "mcpu": "cortex-a72", "mtriple": "aarch64-linux-gnu"},
            },
            "cannot run code for cortex-a72",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        relaxc.compile(_product(), **options)


def test_the_command_line_tunes(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(affine_relu().SerializeToString())
    arguments = [str(tmp_path / "model.onnx"), "-o", str(tmp_path / "model.so"), "--quiet"]
    assert main(["compile", *arguments, "--tune", "quick"]) == 0
    assert relaxc.load(tmp_path / "model.so").report.metrics["tuning"]["measured"] == 0


def test_answers_lie_in_the_users_cache_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXC_TUNING_CACHE")
    assert tuning_folder() == Path.home() / ".cache" / "relaxc" / "tuning"
