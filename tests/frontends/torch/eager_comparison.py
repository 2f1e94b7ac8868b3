"""Runs an imported module through TVM's own default build and compares it with eager."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from frontends.imported_model import ImportedModel
from frontends.torch import import_torch
from tests.frontends.plain_build import plainly_built


class Lambda(torch.nn.Module):
    """A function as a module in eval mode."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def run(model: ImportedModel, *inputs: torch.Tensor) -> list[np.ndarray]:
    """Build `model` with TVM's default pipeline and return its outputs."""
    machine = relax.VirtualMachine(plainly_built(model.module), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(x.numpy()) for x in inputs])
    parts = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [part.numpy() for part in parts]


def assert_matches_eager(
    function: Any, *inputs: torch.Tensor, dynamic_shapes: Any = None, tolerance: float = 1e-5
) -> ImportedModel:
    """Import `function` (or a module), and assert equal dtypes, shapes and numbers.

    The error is relative to the largest element of torch's answer.
    """
    module = function if isinstance(function, torch.nn.Module) else Lambda(function)
    model = import_torch(module, inputs, dynamic_shapes=dynamic_shapes)
    relax.analysis.well_formed(model.module)  # raises where it is not
    assert_same(run(model, *inputs), module(*inputs), tolerance)
    return model


def assert_same(got: list[np.ndarray], expected: Any, tolerance: float = 1e-5) -> None:
    """Assert that `got` equals torch's `expected`, a tensor or a sequence of them."""
    wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, (t.detach().numpy() for t in wanted), strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.size and np.issubdtype(theirs.dtype, np.floating):
            finite = theirs[np.isfinite(theirs)]
            scale = max(np.abs(finite).max(), 1e-30) if finite.size else 1.0
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(ours, theirs)


def operators(model: ImportedModel) -> Counter[str]:
    """Count the Relax operators of `main` by name, without the "relax." prefix."""
    names: Counter[str] = Counter()
    for block in model.module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, tvm.ir.Call):
                names[binding.value.op.name.removeprefix("relax.")] += 1
    return names
