"""The packed matrix product: odd shapes, epilogues, symbolic rows, and its machine code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi
from tvm.tirx import For, PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import (
    assembly,
    assert_all_run,
    assert_runs,
    hot_loop,
    libm_calls,
    machine,
    run,
)
from tir_schedules.llvm import matmul
from tir_schedules.llvm.matmul import RULE, depth_parts, matmul_packed, pack_weight, panel_width
from tir_schedules.llvm.prefetch_panel import fits_ahead
from tir_schedules.llvm.register_tile import rows_per_tile
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)


def _rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _product(
    lead: tuple[object, ...], k: int, n: int, epilogue: Callable[..., list[te.Tensor]]
) -> tuple[PrimFunc, np.ndarray, np.ndarray, np.ndarray]:
    """Return the function of inputs (x, packed, bias), the weight, its packed form and a bias."""
    weight, bias = _rand(k, n), _rand(n)
    packed = pack_weight(weight, machine())
    x = te.placeholder((*lead, k), name="x")
    p = te.placeholder(packed.shape, name="p")
    b = te.placeholder((n,), name="b")
    outs = epilogue(topi.add(matmul_packed(x, p, n), b))
    return te.create_prim_func([x, p, b, *outs]), weight, packed, bias


def _gelu(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * (0.5 + 0.5 * tirx.tanh(x(*i))), name="gelu")


def _np_gelu(x: np.ndarray) -> np.ndarray:
    return x * (0.5 + 0.5 * np.tanh(x))


@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 16), (7, 33), (64, 1000)])
def test_pack_weight_pads_with_zeros(k: int, n: int) -> None:
    weight = _rand(k, n)
    packed = pack_weight(weight, machine())
    panels, depth, nr = packed.shape
    flat = packed.transpose(1, 0, 2).reshape(k, -1)
    assert (panels, depth) == (-(-n // nr), k)
    np.testing.assert_array_equal(flat[:, :n], weight)
    assert not flat[:, n:].any()


def test_pack_weight_refuses_other_ranks() -> None:
    with pytest.raises(ValueError, match="rank 2"):
        pack_weight(_rand(2, 3, 4), machine())


@pytest.mark.parametrize(
    ("lead", "k", "n"),
    [((), 9, 5), ((1,), 64, 1000), ((13,), 7, 33), ((3, 5), 16, 16), ((2, 1, 7), 31, 48)]
    + [((128,), 64, 96), ((61,), 12, 17), ((2, 61), 12, 1)],
)
def test_odd_shapes(lead: tuple[int, ...], k: int, n: int) -> None:
    func, weight, packed, bias = _product(lead, k, n, lambda c: [c])
    x = _rand(*lead, k)
    assert_runs(func, RULE, [x, packed, bias], [x @ weight + bias])


@pytest.mark.parametrize("columns", [1, 40])
@pytest.mark.parametrize("lead", ["m", "1 m", "n m", "n 4"])
def test_symbolic_rows(lead: str, columns: int) -> None:
    dims = {"m": te.var("m", "int64"), "n": te.var("n", "int64"), "1": 1, "4": 4}
    names = lead.split()
    func, weight, packed, bias = _product(
        tuple(dims[name] for name in names), 16, columns, lambda c: [_gelu(c)]
    )
    calls = []
    for rows in (1, 5, 6, 13, 128):
        sizes = {"m": rows, "n": 3 if lead == "n m" else rows, "1": 1, "4": 4}
        x = _rand(*(sizes[name] for name in names), 16)
        calls.append(([x, packed, bias], [_np_gelu(x @ weight + bias)]))
    assert_all_run(func, RULE, calls)


def _heads(axes: tuple[int, ...], width: int) -> Callable[[te.Tensor], list[te.Tensor]]:
    return lambda c: [topi.transpose(topi.reshape(c, (2, 13, 96 // width, width)), axes)]


EPILOGUES = {
    "gelu": (lambda c: [_gelu(c)], lambda y: [_np_gelu(y)]),
    "flatten": (lambda c: [topi.reshape(c, (26, 96))], lambda y: [y.reshape(26, 96)]),
    "heads": (
        _heads((0, 2, 1, 3), 16),
        lambda y: [y.reshape(2, 13, 6, 16).transpose(0, 2, 1, 3)],
    ),
    "narrow heads": (
        _heads((0, 2, 1, 3), 8),
        lambda y: [y.reshape(2, 13, 12, 8).transpose(0, 2, 1, 3)],
    ),
    "transposed heads": (
        _heads((0, 2, 3, 1), 16),
        lambda y: [y.reshape(2, 13, 6, 16).transpose(0, 2, 3, 1)],
    ),
    "split": (lambda c: list(topi.split(c, 3, axis=-1)), lambda y: np.split(y, 3, -1)),
    "two results": (
        lambda c: [c, topi.nn.relu(c)],
        lambda y: [y, np.maximum(y, 0)],
    ),
    "cast": (lambda c: [topi.cast(c, "float64")], lambda y: [y.astype("float64")]),
    "slice": (
        lambda c: [topi.strided_slice(c, [0, 0, 0], [2, 13, 50])],
        lambda y: [y[:, :, :50]],
    ),
    "sum": (lambda c: [topi.sum(c, axis=-1)], lambda y: [y.sum(-1)]),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue(name: str) -> None:
    build, expected = EPILOGUES[name]
    func, weight, packed, bias = _product((2, 13), 32, 96, build)
    x = _rand(2, 13, 32)
    assert_runs(func, RULE, [x, packed, bias], expected(x @ weight + bias))


def test_epilogue_is_computed_inside_the_tile_loop() -> None:
    func, *_ = _product((128,), 64, 96, lambda c: [_gelu(c)])
    scheduled = RULE.apply(func, machine())
    assert len(scheduled.get_child_blocks(scheduled.get_sblock("root"))) == 3  # init, update, gelu
    outer = {
        str(scheduled.get(scheduled.get_loops(name)[0]).loop_var.name)
        for name in ("matmul_tiles_update", "gelu")
    }
    assert len(outer) == 1


def test_costly_prologue_stays_out_of_the_hot_loop() -> None:
    weight = _rand(32, 48)
    packed = pack_weight(weight, machine())
    x, p = te.placeholder((13, 32), name="x"), te.placeholder(packed.shape, name="p")
    func = te.create_prim_func([x, p, matmul_packed(_gelu(x), p, 48)])
    value = _rand(13, 32)
    assert_runs(func, RULE, [value, packed], [_np_gelu(value) @ weight])
    update = RULE.apply(func, machine()).mod["main"].script().split('sblock("matmul_tiles_update")')
    assert "T.tanh" in update[0] and "T.tanh" not in update[1]


def test_nothing_past_the_last_column_is_stored() -> None:
    # 17 columns in two panels of 16: rows are adjacent, so a wide store would hit the next row.
    func, weight, packed, bias = _product((5,), 8, 17, lambda c: [c])
    x = _rand(5, 8)
    (got,) = run(func, RULE, [x, packed, bias], [np.zeros((5, 17), "float32")])
    np.testing.assert_allclose(got, x @ weight + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "tile"), [(1, 1), (6, 6), (7, 4), (8, 4), (128, 6), (None, 6)])
def test_row_tiles_are_balanced(rows: int | None, tile: int) -> None:
    assert rows_per_tile(rows, 16) == tile


@pytest.mark.parametrize(
    ("depth", "parts"), [(768, 1), (2730, 1), (3072, 2), (4096, 2), (11008, 5)]
)
def test_a_panel_too_deep_to_fetch_ahead_is_cut(depth: int, parts: int) -> None:
    avx2 = Machine("avx2", "llvm", 256, 16, 32 << 10, 512 << 10, 8 << 20, 2)
    found = depth_parts(depth, 768, 64, avx2)
    assert len(found) == parts
    assert [at for part in found for at in part] == list(range(depth))
    assert all(fits_ahead(4 * len(part) * 16, avx2) for part in found)
    assert all(part.start % 16 == 0 for part in found)
    assert depth_parts(depth, 768, 1, avx2) == [range(depth)]  # one row reads without pause
    assert depth_parts(depth, 768, None, avx2) == found


def test_small_products_stay_serial() -> None:
    def parallel_loops(lead: tuple[int, ...], k: int, n: int) -> int:
        func, *_ = _product(lead, k, n, lambda c: [c])
        kinds: list[int] = []
        body = RULE.apply(func, machine()).mod["main"].body
        tvm_ffi.structural_walk(body, (For, lambda loop: kinds.append(int(loop.kind))))
        return kinds.count(1)

    assert parallel_loops((4,), 16, 32) == 0
    assert parallel_loops((128,), 256, 256) == 1
    assert parallel_loops((1,), 512, 1024) == 1  # 2 MB of weights, though few multiply-adds
    assert parallel_loops((1,), 256, 256) == 0


def test_machine_code_keeps_the_tile_in_registers() -> None:
    avx2 = Machine("avx2", "llvm", 256, 16, 32 << 10, 512 << 10, 8 << 20, 2)
    x = te.placeholder((128, 256), name="x")
    p = te.placeholder(pack_weight(_rand(256, 256), avx2).shape, name="p")
    func = te.create_prim_func([x, p, topi.nn.relu(matmul_packed(x, p, 256))])
    asm = assembly(func, RULE)
    hot = hot_loop(asm, "vfmadd")
    assert sum("vfmadd" in line and "ps" in line and "ymm" in line for line in hot) == 48
    assert not [line for line in hot if "(%rsp)" in line]


def test_epilogue_calls_no_math_library() -> None:
    func, *_ = _product((12,), 64, 96, lambda c: [_gelu(c)])
    assert not libm_calls(assembly(func, RULE))


def test_declines_other_functions() -> None:
    x = te.placeholder((4, 4), name="x")
    func = te.create_prim_func([x, topi.nn.relu(x)])
    with pytest.raises(Decline, match="0 blocks tagged matmul_packed"):
        matmul.RULE.apply(func, machine())


@pytest.mark.parametrize(
    ("columns", "width"), [(768, 64), (1000, 64), (96, 32), (32, 32), (17, 32), (None, 32)]
)
def test_wide_panels_where_registers_hold_them(columns: int | None, width: int) -> None:
    avx512 = Machine("avx512", "llvm", 512, 32, 48 << 10, 2 << 20, 8 << 20, 2)
    avx2 = Machine("avx2", "llvm", 256, 16, 32 << 10, 512 << 10, 8 << 20, 2)
    assert panel_width(columns, avx512) == width
    assert panel_width(columns, avx2) == 16
    assert rows_per_tile(None, width) * width // 16 + width // 16 < 32, "accumulators and weights"


def _symbolic_gelu(columns: int) -> PrimFunc:
    """Return a GELU of a product, a bias and a residual of a symbolic number of rows."""
    rows, nr = te.var("n", "int64"), panel_width(columns, machine())
    shapes = [(rows, 64), (-(-columns // nr), 64, nr), (columns,), (rows, columns)]
    x, packed, bias, rest = (
        te.placeholder(shape, name=name) for shape, name in zip(shapes, "xpbr", strict=True)
    )
    summed = topi.add(topi.add(matmul_packed(x, packed, columns), bias), rest)
    return te.create_prim_func([x, packed, bias, rest, _gelu(summed)])


@pytest.mark.parametrize("rows", [1, 5, 6, 13, 85])
@pytest.mark.parametrize("columns", [48, 17])
def test_a_symbolic_number_of_rows_with_a_long_epilogue(rows: int, columns: int) -> None:
    """Rows past the end are computed as copies of the last one: nothing of them is stored."""
    x, weight, bias = _rand(rows, 64), _rand(64, columns), _rand(columns)
    rest = _rand(rows, columns)
    inputs = [x, pack_weight(weight, machine()), bias, rest]
    assert_runs(_symbolic_gelu(columns), RULE, inputs, [_np_gelu(x @ weight + bias + rest)])


def test_conditions_on_rows_leave_the_sums_in_registers() -> None:
    """Branches around the epilogue had made LLVM store and load sums at each step."""
    asm = assembly(_symbolic_gelu(48), RULE)
    block = hot_loop(asm, "vfmadd231ps")
    hot = block[: next(at for at, line in enumerate(block) if line.startswith("j"))]
    assert sum("vfmadd" in line for line in hot) == 48
    assert not [line for line in hot if "ymm" in line and "(%rsp)" in line]
