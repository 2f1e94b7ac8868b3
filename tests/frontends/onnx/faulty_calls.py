"""Models of one node, called with inputs of which some must be refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference

Inputs = dict[str, tuple[str, Sequence[int | str]]]
Feed = dict[str, np.ndarray]


def model_of(
    op: str, inputs: Inputs, outputs: int = 1, *, opset: int = 18, **attributes: Any
) -> onnx.ModelProto:
    """Return a model of one node called "the_node"."""
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, list(inputs), names, name="the_node", **attributes)
    model = make_model([node], inputs, names, opset=opset)
    for value in model.graph.output:
        value.type.Clear()
    return model


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def check(model: onnx.ModelProto, good: Feed, bad: Sequence[Feed]) -> None:
    """Assert that a good call agrees with ONNX Runtime, before and after each refused one."""
    compiled = relaxc.compile(model, threads=1, progress=False)
    wanted = run_reference(model, good)

    def runs() -> None:
        results = compiled(**good)
        for got, want in zip(results if len(wanted) > 1 else [results], wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    runs()
    for feed in bad:
        with pytest.raises(relaxc.RunError) as caught:
            compiled(**feed)
        assert caught.value.__cause__ is not None
        assert caught.value.tensor is not None
        assert caught.value.file == "test"
        runs()
