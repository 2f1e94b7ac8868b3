"""Versions of a model in one module: names stay apart, equal kernels are kept once."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.merge_modules import merge_modules
from tests.plain_build import build_plainly


def version(rows: int, scale: float, nested: bool = False) -> tvm.IRModule:
    """Return tanh(x) * scale, the product in a private function if `nested`."""
    builder = relax.BlockBuilder()

    def times(x: relax.Var) -> relax.Expr:
        return builder.emit(relax.op.multiply(x, relax.const(scale, "float32")))

    kind = relax.TensorType([rows, 4], "float32")
    inner = None
    if nested:
        y = relax.Var("y", kind)
        with builder.function("inner", [y], private=True):
            builder.emit_func_output(times(y))
        inner = next(v for v in builder.get().get_global_vars() if v.name_hint == "inner")
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        value = builder.emit(relax.op.tanh(x))
        result = times(value) if inner is None else builder.emit(relax.Call(inner, [value]))
        builder.emit_func_output(result)
    return relax.transform.LegalizeOps()(builder.get())


def run(module: tvm.IRModule, entry: str, rows: int) -> np.ndarray:
    machine = relax.VirtualMachine(build_plainly(module), tvm.cpu())
    return machine[entry](tvm.runtime.tensor(np.ones((rows, 4), "float32"))).numpy()


@pytest.mark.parametrize("nested", [False, True])
def test_each_version_runs_its_own_functions(nested: bool) -> None:
    """The inner functions have one name, one shape and different numbers."""
    merged = merge_modules(
        version(2, 1.0, nested),
        {"other": version(2, 3.0, nested), "third": version(5, 5.0, nested)},
    )
    relax.analysis.well_formed(merged)
    one = np.tanh(np.float32(1))
    for entry, rows, scale in (("main", 2, 1), ("other", 2, 3), ("third", 5, 5)):
        np.testing.assert_allclose(run(merged, entry, rows), np.full((rows, 4), one * scale), 1e-5)


def test_equal_kernels_are_kept_once() -> None:
    main = version(2, 1.0)
    kernels = len(main.functions) - 1
    same = merge_modules(main, {"again": version(2, 1.0)})
    other = merge_modules(main, {"again": version(3, 1.0)})
    assert len(same.functions) == kernels + 2
    assert len(other.functions) == 2 * kernels + 2
