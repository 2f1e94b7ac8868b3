"""Comparisons with NaN, alone and where fusion puts the opposite of one into one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
from tvm import te, tirx
from tvm.tirx import Expr

import relaxc
from tir_schedules.llvm.unordered_comparison import compare_unordered

SPECIAL = np.asarray([np.nan, 0.0, -0.0, 1.0, -1.0, np.inf, -np.inf], "float64")
X, Y = (part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL))

RULES: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[..., np.ndarray]]] = {
    "not equal": (tirx.NE, np.not_equal),
    "opposite of equal": (lambda a, b: tirx.Not(tirx.EQ(a, b)), np.not_equal),
    "opposite of not equal": (lambda a, b: tirx.Not(tirx.NE(a, b)), np.equal),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", RULES)
def test_numbers(name: str, dtype: str) -> None:
    compare, expected = RULES[name]
    x, y = X.astype(dtype), Y.astype(dtype)
    a, b = (te.placeholder(x.shape, dtype, name=name) for name in ("a", "b"))
    func = te.create_prim_func([a, b, te.compute(x.shape, lambda i: compare(a(i), b(i)))])
    func = compare_unordered(func)
    assert compare_unordered(func).same_as(func)
    func = func.with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": func}), target={"kind": "llvm"})
    result = tvm.runtime.empty(x.shape, "bool")
    library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), result)
    np.testing.assert_array_equal(result.numpy(), expected(x, y))


def test_integers_are_left_alone() -> None:
    a = te.placeholder((8,), "int32", name="a")
    func = te.create_prim_func([a, te.compute((8,), lambda i: tirx.NE(a(i), a(0)))])
    assert compare_unordered(func) is func


def test_a_compiled_module_compares_with_nan_as_torch_does() -> None:
    class Compare(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            smaller = torch.where(~(x < y), x * 2, y)
            return x != y, ~(x == y), ~((x < y) | (x > y)), x.bool(), smaller

    x, y = torch.from_numpy(X.astype("float32")), torch.from_numpy(Y.astype("float32"))
    compiled = relaxc.compile(Compare().eval(), example_inputs=(x, y), threads=1, progress=False)
    for got, want in zip(compiled(x, y), Compare()(x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.numpy())
