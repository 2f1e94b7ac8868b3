"""The structure of each family's kernels is what is checked in, whatever its variables are called.

Meant to change? `python -m tests.cuda.golden_cases`, and look at the difference.
"""

from __future__ import annotations

import re

import pytest

from tests.cuda.golden_cases import CASES, FOLDER, written
from tests.cuda.kernel_structure import structure
from tir_schedules.cuda.rules import cuda_rules


@pytest.mark.parametrize("name", CASES)
def test_structure(name: str) -> None:
    assert written(name) == (FOLDER / f"{name}.txt").read_text()


def test_every_rule_has_a_file() -> None:
    """The fallback makes any kernel, and tf32 is an option: see `test_tf32_matmul`."""
    others = {"fallback", "tf32_matmul"}
    assert {rule for _, rule in CASES.values()} == {r.name for r in cuda_rules()} - others
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES)


_SOURCE = """
extern "C" __global__ void __launch_bounds__(64) main_kernel(float* __restrict__ x_ptr) {
  __shared__ float tile[64];
  float sums[4];
  for (int i = 0; i < 4; ++i) {
    tile[i] = x_ptr[(i * 64)];
    __syncthreads();
    if (i < 2) {
      sums[i] = sums[i] + 1.0f;
    }
  }
  *(float4*)(x_ptr + 4) = *(float4*)(sums + 0);
}
"""
_STRUCTURE = """shared float[64]
registers float[4]
for 4:
  store an element of shared
  load an element of global
  barrier
store 16 bytes of global
"""


def test_names_do_not_matter_and_structure_does() -> None:
    assert structure(_SOURCE, "main_kernel") == _STRUCTURE
    renamed = re.sub(r"\b(tile|sums|i)\b", r"other_\1", _SOURCE).replace("x_ptr", "y_ptr")
    assert structure(renamed, "main_kernel") == _STRUCTURE
    for old, new in (("< 4", "< 8"), ("__syncthreads();", ""), ("float4*)(x", "float2*)(x")):
        assert structure(_SOURCE.replace(old, new), "main_kernel") != _STRUCTURE
