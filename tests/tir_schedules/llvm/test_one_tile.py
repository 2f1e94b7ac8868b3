"""A convolution's tile has a constant size, however its symbolic number of pixels is written."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from tests.tir_schedules.llvm.scheduled_kernel import AVX2, machine
from tir_schedules.llvm.conv2d_nchwc import RULE, TILES, conv2d_nchwc


def simplified_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write (n // 8 + 1) * 8 as n // 8 * 8 + 8, as passes over sizes do."""
    analyzer = tvm.sym.Analyzer()
    return tvm_ffi.structural_map(func, (tirx.Mul, analyzer.simplify))


@pytest.mark.parametrize("simplified", [False, True])
def test_the_tile_is_constant(simplified: bool) -> None:
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    x = te.placeholder((1, 2, h, w, 8), name="x")
    k = te.placeholder((2, 2, 1, 1, 8, 8), name="k")
    func = te.create_prim_func([x, k, conv2d_nchwc(x, k, machine(AVX2))])
    sch = RULE.apply(simplified_sizes(func) if simplified else func, machine(AVX2))
    tile = sch.get(sch.get_sblock(f"{TILES}_update")).writes[0].source
    assert all(isinstance(size, tirx.IntImm) for size in tile.shape)
