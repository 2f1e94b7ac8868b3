"""The GPU benchmark without a GPU: its logic with made-up engines, and a run on the emulator."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from benchmarks.gpu import Row, device_clock, main, measure, relative_error, render, run_cases
from benchmarks.gpu_cases import CASES, FAMILIES, HALF_FAMILIES

CASE = FAMILIES["matmul"]


class FakeEngine:
    """An engine whose calls take known seconds; `factor` spoils its numbers."""

    def __init__(self, name: str, seconds: Sequence[float], factor: float = 1, fault: str = ""):
        self.name, self.factor, self.fault = name, factor, fault
        self.least_seconds = 1e-3
        self.times = list(seconds)

    def prepare(self, case: Any, inputs: Sequence[np.ndarray], small: bool) -> Callable[[], Any]:
        if self.fault:
            raise RuntimeError(f"first line\n{self.fault}\n")
        result = self.factor * np.maximum(inputs[0] @ inputs[1], 0)

        def call() -> Any:
            return self, result

        return call

    def array(self, result: Any) -> np.ndarray:
        return result[1]


def clock(call: Callable[[], Any]) -> float:
    return call()[0].times.pop(0)


def reference(case: Any, inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.maximum(inputs[0].astype("float64") @ inputs[1], 0)


def measured(*engines: FakeEngine) -> Row:
    return measure("matmul", CASE, engines, reference, clock, small=True)


def test_medians_of_rounds_and_ratios() -> None:
    ours = FakeEngine("relaxc", [5e-3, 2e-3, 1e-3, 2e-3, 9e-3])
    peer = FakeEngine("torch", [4e-3] * 5)
    row = measured(ours, peer)
    assert row.seconds == {"relaxc": 2e-3, "torch": 4e-3}
    assert row.is_right
    text = render([row], ["relaxc", "torch"], "a GPU", ["softmax"])
    assert f"| matmul | {row.error:.1e} | 2000.0 | 50% | 4000.0 (2.00) |" in text
    assert "- softmax: no time was left" in text


def test_an_engine_that_fails_is_a_dash_and_a_reason() -> None:
    row = measured(
        FakeEngine("relaxc", [1e-3] * 5), FakeEngine("TVM default", [], fault="no rule for it")
    )
    assert row.failures == {"TVM default": "RuntimeError: no rule for it"}
    text = render([row], ["relaxc", "TVM default"], "a GPU", [])
    assert "| 1000.0 | 100% | - |" in text
    assert "- matmul, TVM default: RuntimeError: no rule for it" in text


def test_wrong_numbers_and_cases_that_do_not_run_are_no_success() -> None:
    wrong = measured(FakeEngine("relaxc", [1e-3] * 5, factor=1.01))
    assert not wrong.is_right
    assert "- matmul: the numbers are WRONG" in render([wrong], ["relaxc"], "a GPU", [])
    failed = measured(FakeEngine("relaxc", [], fault="it broke"), FakeEngine("torch", [1e-3] * 5))
    assert not failed.is_right
    assert "| matmul | - | - | - | 1000.0 |" in render([failed], ["relaxc", "torch"], "a GPU", [])


def test_errors_that_no_number_shows() -> None:
    ones = np.ones(3)
    assert relative_error(ones, ones) == 0
    assert relative_error(np.ones((3, 1)), ones) == float("inf")
    assert relative_error(np.array([1, np.nan, 1]), ones) == float("inf")
    assert relative_error(ones * 3, ones * 2) == 0.5


def test_cases_stop_when_the_time_is_over() -> None:
    seconds = iter([0.0, 1.0, 700.0, 800.0])
    engine = FakeEngine("relaxc", [1e-3] * 5)
    rows, skipped = run_cases(
        *({"one": CASE, "two": CASE, "three": CASE}, [engine], reference, clock),
        budget=600,
        small=True,
        now=lambda: next(seconds),
    )
    assert [row.case for row in rows] == ["one"]
    assert skipped == ["two", "three"]


def test_the_clock_waits_for_the_device_and_divides_by_the_calls() -> None:
    log: list[str] = []
    seconds = device_clock(lambda: log.append("wait"))(lambda: log.append("call"))
    assert 0 < seconds < 1
    assert log[:3] == ["wait", "call", "wait"]
    assert log[-1] == "wait"
    assert log.count("call") > 100


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if tvm.cuda().exist:
        pytest.skip("there is a GPU")
    assert main(["--output", str(tmp_path)]) == 2
    assert "no CUDA device here" in capsys.readouterr().err
    assert main(["--only", "sorcery"]) == 2
    assert "no case is called 'sorcery'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*FAMILIES, *HALF_FAMILIES])
def test_cases_compute_with_torch_what_they_emit(name: str) -> None:
    """Shapes of both sizes: of the graph, and of torch's result."""
    import torch

    case = CASES[name]
    for small in (True, False):
        ty = case.source(small)[0]["main"].ret_ty
        kind = {"float32": torch.float32, "float16": torch.float16}[case.dtype]
        tensors = [
            torch.empty(
                shape,
                dtype=torch.int64 if case.indices and at == len(case.shapes) - 1 else kind,
                device="meta",
            )
            for at, shape in enumerate(case.sizes(small))
        ]
        assert tuple(case.function()(*tensors).shape) == tuple(int(size) for size in ty.shape)


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the emulator runs there"
)
def test_it_runs_on_the_emulated_device(tmp_path: Path) -> None:
    program = (
        "from tests.cuda.emulator.install import install; install();"
        "import sys; from benchmarks.gpu import main; sys.exit(main(sys.argv[1:]))"
    )
    cases = ["--small", "--only", "softmax,gather", "--output", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-c", program, *cases],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    (written,) = tmp_path.glob("*.json")
    rows = {row["case"]: row for row in json.loads(written.read_text())["rows"]}
    assert set(rows) == {"softmax", "gather"}
    assert all(row["seconds"].keys() >= {"relaxc", "TVM default"} for row in rows.values())
    assert rows["softmax"]["error"] < 1e-5
    assert "| gather |" in written.with_suffix(".md").read_text()
