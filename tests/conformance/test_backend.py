"""relaxc as ONNX backend: driven by ONNX's own runner, and by the calls that its interface has."""

from __future__ import annotations

import unittest

import numpy as np
import onnx.backend.test
import pytest

from relaxc.errors import UnsupportedOperator
from tests.conformance.backend import RelaxcBackend
from tests.relaxc.small_models import affine_relu

PATTERNS = {
    r"^test_gemm_transpose[AB]_cpu": 2,
    r"^test_softmax_axis_[012]_cpu": 3,
    r"^test_Conv2d_strided_cpu": 1,
    r"^test_operator_chunk_cpu": 1,
    r"^test_expand_shape_model1_cpu": 1,
}


def test_onnx_s_own_runner_passes() -> None:
    """`BackendTest` collects all of ONNX's cases; some are run, the others are skipped."""
    runner = onnx.backend.test.BackendTest(RelaxcBackend, __name__)
    for pattern in PATTERNS:
        runner.include(pattern)
    result = unittest.TestResult()
    runner.test_suite.run(result)
    assert not result.errors and not result.failures, [*result.errors, *result.failures][0][1]
    assert result.testsRun - len(result.skipped) == sum(PATTERNS.values())


def test_prepare_and_run_model() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    (y,) = RelaxcBackend.run_model(affine_relu(), [x])
    prepared = RelaxcBackend.prepare(affine_relu())
    np.testing.assert_array_equal(prepared.run([x])[0], y)
    assert RelaxcBackend.supports_device("CPU") and not RelaxcBackend.supports_device("CUDA")


def test_what_cannot_be_imported_is_refused_in_prepare() -> None:
    node = onnx.helper.make_node("Odd", ["x"], ["y"], domain="own")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    with pytest.raises(UnsupportedOperator, match="own.Odd"):
        RelaxcBackend.prepare(onnx.helper.make_model(graph, opset_imports=opsets))
