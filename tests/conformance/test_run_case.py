"""The judge of a case, its workers, and the list of what does not pass."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase as OnnxCase

from tests.conformance.cases import Case
from tests.conformance.compare import difference
from tests.conformance.known import changes, read_known, write_known
from tests.conformance.run_case import Outcome, draws, run_case
from tests.conformance.workers import run_cases
from tests.relaxc.small_models import affine_relu

ONE = np.array([1.0, 2.0], "float32")


def case(name: str, model: object, expected: np.ndarray) -> Case:
    """Return a case that runs a model of one input on ones."""
    data = [([np.ones((2, 4), "float32")], [expected])]
    return Case(f"own/{name}", OnnxCase(name, name, None, None, model, data, "node", 1e-3, 1e-7))


@pytest.mark.parametrize(
    ("actual", "same"),
    [
        (ONE, True),
        (ONE * np.float32(1.0005), True),
        (ONE * np.float32(1.01), False),
        (ONE.astype("float64"), False),
        (ONE[:1], False),
        (np.array([1.0, np.nan], "float32"), False),
        ([ONE], False),
        (None, False),
    ],
)
def test_numbers_types_and_shapes_are_compared(actual: object, same: bool) -> None:
    assert (difference([ONE], [actual], 1e-3, 1e-7) == "") is same
    nested = difference([[ONE, ONE]], [[ONE, actual]], 1e-3, 1e-7)
    assert (nested == "") is same


def test_missing_outputs_and_elements_are_seen() -> None:
    assert difference([ONE, ONE], [ONE], 1e-3, 1e-7)
    assert difference([[ONE, ONE]], [[ONE]], 1e-3, 1e-7)
    assert not difference([None], [None], 1e-3, 1e-7)
    half = np.ones(2, "float16")
    assert difference([ONE], [half], 1e-3, 1e-7, drawn=True)
    assert not difference([ONE], [ONE * 2], 1e-3, 1e-7, drawn=True)


def test_only_models_that_draw_are_random() -> None:
    node = onnx.helper.make_node("RandomNormalLike", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    assert draws(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y])))
    assert not draws(affine_relu())


def test_verdicts() -> None:
    model = affine_relu()
    x = np.ones((2, 4), "float32")
    w, b = (onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    right = np.maximum(x @ w + b, 0)
    assert run_case(case("right", model, right)) == Outcome("pass")
    assert run_case(case("off", model, right + np.float32(1))).verdict == "wrong"
    unknown = onnx.ModelProto()
    unknown.CopyFrom(model)
    unknown.graph.node[2].op_type, unknown.graph.node[2].domain = "Odd", "own"
    unknown.opset_import.append(onnx.helper.make_opsetid("own", 1))
    outcome = run_case(case("odd", unknown, right))
    assert outcome.verdict == "unsupported" and "own.Odd" in outcome.reason
    short = onnx.ModelProto()
    short.CopyFrom(model)
    del short.graph.node[1]
    assert run_case(case("dangling", short, right)).verdict == "error"


class Deadly:
    """Kills or stalls the process that unpickles it."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system if self._command.startswith("sleep") else _exit, (self._command,)


def _exit(_: str) -> None:
    os._exit(7)


def test_a_case_that_dies_or_hangs_does_not_stop_the_others() -> None:
    model = affine_relu()
    cases = [
        case("dies", Deadly("exit"), ONE),
        case("hangs", Deadly("sleep 60"), ONE),
        case("lives", model, ONE),
    ]
    outcomes = run_cases(cases, workers=1, seconds=3)
    assert "died (exit code 7)" in outcomes["own/dies"].reason
    assert "no answer in 3 s" in outcomes["own/hangs"].reason
    assert outcomes["own/lives"].verdict in ("wrong", "error")
    assert list(outcomes) == ["own/dies", "own/hangs", "own/lives"]


def test_the_list_keeps_what_was_not_run_and_drops_what_passes(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    write_known(
        {"a": Outcome("wrong", "off"), "b": Outcome("error", "x"), "c": Outcome("pass")}, path
    )
    write_known({"b": Outcome("pass"), "d": Outcome("unsupported", "why")}, path)
    known = read_known(path)
    assert known == {"a": Outcome("wrong", "off"), "d": Outcome("unsupported", "why")}
    found = changes(
        {"a": Outcome("pass"), "d": Outcome("wrong"), "e": Outcome("error"), "f": Outcome("pass")},
        known,
    )
    assert {change.key: change.is_regression for change in found} == {
        "a": False,
        "d": True,
        "e": True,
    }
