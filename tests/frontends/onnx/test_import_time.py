"""Importing takes work in proportion to the nodes: counted in function calls, not in seconds."""

from __future__ import annotations

import cProfile
import gc
import pstats
from collections.abc import Callable

import onnx
import pytest

from benchmarks.import_time import KINDS
from frontends.onnx import import_onnx


def calls_of_an_import(model: onnx.ModelProto) -> int:
    profile = cProfile.Profile()
    profile.runcall(import_onnx, model)
    return int(pstats.Stats(profile).total_calls)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_ten_times_the_nodes_take_ten_times_the_calls(
    make: Callable[[int], onnx.ModelProto],
) -> None:
    import_onnx(make(20))  # what is loaded once is not counted
    small, large = (calls_of_an_import(make(count)) for count in (60, 600))
    assert large <= 11 * small


def test_the_process_is_not_scanned_for_garbage_meanwhile() -> None:
    """A full collection visits every object of the process, however small the model is."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    model = KINDS["with_shape_arithmetic"](600)
    gc.callbacks.append(note)
    try:
        import_onnx(model)
    finally:
        gc.callbacks.remove(note)
    assert generations == []
    assert gc.isenabled()
