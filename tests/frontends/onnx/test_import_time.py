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
    """A full collection visits every object of the process, however small the model is.

    What the import made is collected at its end, so that the collector does not catch up.
    """
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    model = KINDS["with_constants"](600)
    gc.callbacks.append(note)
    try:
        imported = import_onnx(model)
        made_afterwards = [[] for _ in range(10)]
    finally:
        gc.callbacks.remove(note)
    assert generations == [0]
    assert gc.isenabled() and imported.inputs and made_afterwards


@pytest.mark.parametrize("kind", ["with_initializers", "with_constants", "plain"])
def test_nodes_leave_no_cycles_behind(kind: str) -> None:
    """They would stay in memory for the whole import, which does not collect them."""
    model = KINDS[kind](400)
    import_onnx(model)
    gc.collect()
    gc.disable()
    try:
        imported = import_onnx(model)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = len(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert imported.inputs and left < 100
