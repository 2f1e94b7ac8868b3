"""Names in expressions beside common subexpressions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tir_schedules import host_target
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE


@T.prim_func
def _square_of_sums(
    a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32"),
    step: T.int32,
) -> None:  # fmt: skip
    """The offset `i * step + 1` stands in the body of a name, then twice in what follows."""
    T.func_attr({"global_symbol": "main"})
    for i in range(8):
        v = T.float32()
        b[i] = T.Let(v * v + a[i * step + 1], where={v: c[i]})
        c[i] = a[i * step + 1] * a[i * step + 1]


def _build(pipeline: str) -> tvm.runtime.Executable:
    module = tvm.IRModule({"main": _square_of_sums})
    return tvm.compile(module, target=host_target(1), tir_pipeline=pipeline)


def test_a_subexpression_shared_with_the_body_of_a_name() -> None:
    """TVM names the offset after the body: "variable has been used before definition"."""
    with pytest.raises(tvm.error.InternalError, match="used before definition"):
        _build("s_tir")
    a, b, c = (np.random.default_rng(i).random(64, "float32") for i in range(3))
    arrays = [tvm.runtime.tensor(x) for x in (a, b, c)]
    _build(KERNEL_PIPELINE).jit()["main"](*arrays, 3)
    shared = a[1:25:3]
    np.testing.assert_allclose(arrays[1].numpy()[:8], c[:8] ** 2 + shared, rtol=1e-6)
    np.testing.assert_allclose(arrays[2].numpy()[:8], shared**2, rtol=1e-6)


def test_subexpressions_are_named_once() -> None:
    lower, host, _ = tirx.get_tir_pipeline(KERNEL_PIPELINE)
    target = tvm.target.Target(host_target(1), host=host_target(1))
    module = tirx.transform.BindTarget(target)(tvm.IRModule({"main": _square_of_sums}))
    text = host()(lower(module)).script()
    assert "cse_v" in text and text.count("i * step") == 1
