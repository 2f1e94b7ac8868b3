"""The prefetching of weights: every line of the next panel, evenly, and only where it fits."""

from __future__ import annotations

from itertools import product, takewhile

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call, TensorLoad
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx import For, PrimFunc, Var

from tests.tir_schedules.llvm.scheduled_kernel import AVX2, AVX512, assembly, hot_loop, machine
from tir_schedules.llvm import conv2d_nchwc, matmul
from tir_schedules.llvm.prefetch_panel import fits_ahead
from tir_schedules.llvm.winograd_conv2d import winograd_conv2d
from tir_schedules.llvm.winograd_rule import RULE as WINOGRAD
from tir_schedules.rule import Rule

LINE = 16


def _matmul(rows: object, depth: int, columns: int, target: Target = AVX2) -> PrimFunc:
    x = te.placeholder((rows, depth), name="x")
    packed = matmul.pack_weight(np.zeros((depth, columns), "float32"), machine(target))
    p = te.placeholder(packed.shape, name="p")
    return te.create_prim_func([x, p, matmul.matmul_packed(x, p, columns)])


def _convolution(size: int, channels: int, kernel: int) -> PrimFunc:
    blocks = channels // 8
    x = te.placeholder((1, blocks, size, size, 8), name="x")
    w = te.placeholder((blocks, blocks, kernel, kernel, 8, 8), name="w")
    pad = (kernel // 2,) * 4
    y = conv2d_nchwc.conv2d_nchwc(x, w, machine(AVX2), padding=pad)
    return te.create_prim_func([x, w, y])


def _winograd(size: int, channels: int) -> PrimFunc:
    blocks = channels // 8
    x = te.placeholder((1, blocks, size, size, 8), name="x")
    w = te.placeholder((4, 4, blocks, blocks, 8, 8), name="w")
    y = winograd_conv2d(x, w, machine(AVX2), padding=(1, 1, 1, 1))
    return te.create_prim_func([x, w, y])


def _is_fetch(call: Call) -> bool:
    return getattr(call.op, "name", "") == "tirx.call_llvm_intrin" and "prefetch" in str(call)


def _offsets(func: PrimFunc) -> list[list[int]]:
    """Return the offsets that each turn of a task fetches, turn by turn, in elements."""
    loops: list[For] = []
    fetches: list[Call] = []
    loads: list[TensorLoad] = []
    found = [(For, loops.append), (Call, lambda call: _is_fetch(call) and fetches.append(call))]
    tvm_ffi.structural_walk(func.body, found, order="pre")
    (fetch,) = fetches
    tvm_ffi.structural_walk(fetch, (TensorLoad, loads.append), order="pre")
    offset = Analyzer().simplify(loads[0].indices[-1])
    used: list[Var] = []
    tvm_ffi.structural_walk(offset, (Var, used.append), order="pre")
    *nest, ahead = [loop for loop in loops if any(loop.loop_var.same_as(var) for var in used)]
    places = [[*at] for at in product(*(range(int(loop.extent)) for loop in nest))]
    return [
        [_at(offset, [*nest, ahead], [*at, line]) for line in range(int(ahead.extent))]
        for at in places
    ]


def _at(offset: tirx.Expr, loops: list[For], place: list[int]) -> int:
    axes = [loop.loop_var for loop in loops]
    given = {var: tirx.const(i, str(var.ty.dtype)) for var, i in zip(axes, place, strict=True)}
    value = tvm_ffi.structural_map(offset, (Var, lambda var: given[var]))
    return int(Analyzer().simplify(value))


CASES = {
    "matmul": (_matmul(30, 64, 64), matmul.RULE, 64 * 16),
    "1x1": (_convolution(7, 64, 1), conv2d_nchwc.RULE, None),
    "3x3": (_convolution(5, 16, 3), conv2d_nchwc.RULE, None),
    "winograd": (_winograd(8, 32), WINOGRAD, None),
}


@pytest.mark.parametrize("name", CASES)
def test_each_line_of_the_next_panel_is_fetched_evenly(name: str) -> None:
    func, rule, elements = CASES[name]
    scheduled = rule.apply(func, machine(AVX2)).mod["main"]
    turns = _offsets(scheduled)
    start = turns[0][0]
    if elements is not None:
        assert start == elements
    lines = {(offset - start) // LINE for turn in turns for offset in turn}
    assert all((offset - start) % LINE == 0 for turn in turns for offset in turn)
    assert lines >= set(range(start // LINE)), "the next panel is as long as this one"
    assert max(lines) <= start // LINE + len(turns[0])
    firsts = [turn[0] for turn in turns]
    steps = {(after - before) // LINE for before, after in zip(firsts, firsts[1:], strict=False)}
    assert max(steps) - min(steps) <= 1, "no burst"


def test_a_panel_that_does_not_fit_is_not_fetched() -> None:
    model = machine(AVX2)
    assert not fits_ahead(model.l2_bytes // 2, model)
    depth = model.l2_bytes // (4 * 16)
    scheduled = matmul.RULE.apply(_matmul(30, depth, 32), model).mod["main"]
    assert "prefetch" not in scheduled.script()


def _stores(line: str) -> bool:
    return line.startswith("vmov") and line.endswith(")")


@pytest.mark.parametrize(
    ("func", "rule", "target"),
    [
        (_matmul(30, 64, 64), matmul.RULE, AVX2),
        (_matmul(60, 256, 256, AVX512), matmul.RULE, AVX512),  # parallel, tiles of 1.5 KiB
    ],
    ids=["one task", "parallel"],
)
def test_the_tile_stays_in_registers(func: PrimFunc, rule: Rule, target: Target) -> None:
    asm = assembly(func, rule, target)
    hot = list(takewhile(lambda line: line[0] != "j", hot_loop(asm, "vfmadd")))
    assert any("prefetcht1" in line for line in hot)
    assert not [line for line in hot if "(%rsp)" in line or _stores(line)]
    assert ("TVMBackendParallelLaunch" in asm) == (target is AVX512)


def _symbolic(columns: int = 64, *, gelu: bool = False) -> PrimFunc:
    x = te.placeholder((te.var("m", "int64"), 256), name="x")
    packed = matmul.pack_weight(np.zeros((256, columns), "float32"), machine(AVX2))
    p = te.placeholder(packed.shape, name="p")
    y = matmul.matmul_packed(x, p, columns)
    if gelu:
        half, one, root = (tirx.const(value, "float32") for value in (0.5, 1.0, 0.70710678))
        made = y
        y = te.compute(
            made.shape, lambda *i: half * made(*i) * (one + tirx.erf(made(*i) * root)), name="gelu"
        )
    return te.create_prim_func([x, p, y])


def test_rows_of_unknown_number() -> None:
    """Tiles past the last row do nothing; of few tiles each step fetches as much as it must."""
    script = matmul.RULE.apply(_symbolic(), machine(AVX2)).mod["main"].script()
    lines = [line.strip() for line in script.splitlines()]
    assert sum("llvm.prefetch" in line for line in lines) == 2, "of few tiles, and of many"
    assert sum("T.unroll(T.int64(4))" in line and "ahead" in line for line in lines) == 1
    for at, line in enumerate(lines):
        if line == 'with T.sblock("matmul_tiles_update"):':
            assert not any("T.where" in inner for inner in lines[at : at + 8])


@pytest.mark.parametrize("gelu", [False, True])
def test_a_symbolic_tile_stays_in_registers(gelu: bool) -> None:
    """The sums are in memory where a step of the reduction stands under a condition."""
    hot = hot_loop(assembly(_symbolic(3072, gelu=gelu), matmul.RULE, AVX2), "vfmadd")
    loop = list(takewhile(lambda line: line[0] != "j", hot))
    assert sum("vfmadd" in line for line in loop) == 48
    assert not [line for line in loop if "ymm" in line and ("rsp" in line or _stores(line))]


def test_a_single_row_needs_no_prefetch() -> None:
    def script(rows: int) -> str:
        return matmul.RULE.apply(_matmul(rows, 64, 64), machine(AVX2)).mod["main"].script()

    assert "prefetch" not in script(1)
    assert "prefetch" in script(4)
