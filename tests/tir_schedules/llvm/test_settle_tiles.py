"""A long epilogue reads a copy of the register tile; the product before it keeps its registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile

import pytest
from tvm import te, tirx, topi
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import AVX2, AVX512, assembly, compiled, hot_loop
from tests.tir_schedules.llvm.scheduled_kernel import machine as machine_of
from tir_schedules.llvm.conv2d_nchwc import RULE as CONV2D
from tir_schedules.llvm.conv2d_nchwc import conv2d_nchwc
from tir_schedules.llvm.matmul import RULE as MATMUL
from tir_schedules.llvm.matmul import matmul_packed, panel_width
from tir_schedules.machine import Machine

Epilogue = Callable[[te.Tensor], te.Tensor]


def _gelu(x: te.Tensor) -> te.Tensor:
    half = tirx.const(0.5, "float32")

    def value(*index: tirx.Expr) -> tirx.Expr:
        y = x(*index)
        return y * (half + half * tirx.erf(y * tirx.const(0.5**0.5, "float32")))

    return te.compute(x.shape, value, name="gelu")


def _product(rows: int, depth: int, cols: int, machine: Machine, epilogue: Epilogue) -> PrimFunc:
    width = panel_width(cols, machine, depth)
    x = te.placeholder((rows, depth), name="x")
    packed = te.placeholder((-(-cols // width), depth, width), name="packed")
    bias = te.placeholder((cols,), name="bias")
    y = topi.add(matmul_packed(x, packed, cols), bias)
    return te.create_prim_func([x, packed, bias, epilogue(y)])


def _stack_moves(asm: str) -> list[str]:
    """Return the moves of vectors between registers and the stack in the hot loop."""
    # The copy follows the jump back without a label between.
    loop = takewhile(lambda line: not line.startswith("j"), hot_loop(asm, "vfmadd231ps"))
    return [line for line in loop if re.search(r"mm\d+.*\(%r[sb]p\)|\(%r[sb]p\).*mm\d+", line)]


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("shape", [(196, 384, 1536), (49, 768, 3072), (3136, 96, 384)])
def test_a_product_with_gelu_keeps_its_tile_in_registers(
    target: Target, shape: tuple[int, int, int]
) -> None:
    func = _product(*shape, machine_of(target), _gelu)
    assert _stack_moves(assembly(func, MATMUL, target)) == []


def test_a_convolution_with_gelu_keeps_its_tile_in_registers() -> None:
    x = te.placeholder((1, 8, 28, 28, 8), name="x")
    w = te.placeholder((8, 8, 3, 3, 8, 8), name="w")
    func = te.create_prim_func([x, w, _gelu(conv2d_nchwc(x, w, machine_of(AVX2)))])
    assert _stack_moves(assembly(func, CONV2D, AVX2)) == []


@pytest.mark.parametrize(("epilogue", "copied"), [(_gelu, True), (topi.nn.relu, False)])
def test_only_a_long_epilogue_reads_a_copy(epilogue: Epilogue, copied: bool) -> None:
    func = _product(196, 384, 1536, machine_of(AVX2), epilogue)
    code = str(compiled(func, MATMUL, AVX2).mod.inspect_source("ll"))
    assert ("store volatile" in code) == copied
