"""What the emulator computes, counts and catches, on hand-written kernels (one g++ run)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.cuda.emulator.launch import Fault, Grid, Traffic, launch
from tests.cuda.hand_written import DOT_TYPES, SOURCE

TWO_WARPS = Grid([1], [64])
RANDOM = np.random.default_rng(0)


def run(
    kernel: str, x: np.ndarray, results: int = 64, **options: bool
) -> tuple[np.ndarray, Traffic]:
    y = np.full(results, np.nan, "float32")
    traffic = launch(SOURCE, kernel, TWO_WARPS, {"x": x, "y": y}, checked=True, **options)
    return y, traffic


def values(count: int) -> np.ndarray:
    return RANDOM.standard_normal(count).astype("float32")


@pytest.mark.parametrize("backward", [False, True])
def test_right_kernels_give_right_numbers(backward: bool) -> None:
    x = values(2048)
    np.testing.assert_array_equal(run("reverse", x[:64], backward=backward)[0], x[63::-1])
    sums = x.reshape(8, 256).astype("float64").sum(0)[:191:-1]
    np.testing.assert_allclose(run("ring", x, backward=backward)[0], sums, rtol=1e-5, atol=1e-5)
    part = np.where(np.arange(64) % 2, x[:256:4] + x[3:256:4], 0)
    np.testing.assert_array_equal(run("copy_a_part", x[:256], backward=backward)[0], part)
    sums = np.repeat(x[:64].reshape(2, 32).astype("float64").sum(1), 32) + 7
    np.testing.assert_allclose(run("warp_sums", x[:64], backward=backward)[0], sums, rtol=1e-5)


FAULTS = {
    "reverse_without_barrier": "never written",
    "barrier_of_one_warp": "after some threads returned",
    "barriers_apart": "different __syncthreads",
    "read_past_the_end": "a read outside a buffer",
    "read_far_away": "a read outside a buffer",
    "read_unwritten": "never written",
    "never_waits": "copy in flight",
    "ring_without_wait": "copy in flight",
    "ring_read_too_early": "in flight",
    "ring_refilled_too_early": "race",
}


@pytest.mark.parametrize(("kernel", "message"), FAULTS.items())
def test_wrong_kernels_are_caught(kernel: str, message: str) -> None:
    x = values(2048 if kernel.startswith("ring") else 256 if kernel == "never_waits" else 64)
    with pytest.raises(Fault, match=message):
        run(kernel, x)


def test_a_race_is_caught_whichever_thread_comes_first() -> None:
    with pytest.raises(Fault, match="race|never written"):
        run("reverse_without_barrier", values(64), backward=True)


def test_bank_conflicts_are_counted_per_warp() -> None:
    x = values(1024)
    for kernel, conflicts in [("columns", 32 * 31), ("columns_padded", 0)]:
        y, traffic = run(kernel, x, 1024)
        np.testing.assert_array_equal(y.reshape(32, 32), x.reshape(32, 32).T)
        assert traffic.bank_conflicts == conflicts
        assert traffic.shared_instructions == 64
        assert traffic.global_read_bytes == traffic.global_written_bytes == 4096


def test_a_vector_is_one_access() -> None:
    x = values(256)
    y, traffic = run("vectors", x, 256)
    np.testing.assert_array_equal(y, x + np.tile([1, 0, 0, 0], 64).astype("float32"))
    assert (traffic.bank_conflicts, traffic.shared_instructions) == (0, 4)
    assert traffic.global_read_bytes == traffic.global_written_bytes == 1024


@pytest.mark.parametrize(
    ("kernel", "dtype", "depth"),
    [
        ("multiply_f16", np.float16, 16),
        ("multiply_bf16", ml_dtypes.bfloat16, 16),
        ("multiply_tf32", np.float32, 8),
        ("multiply_s8", np.int8, 32),
        ("multiply_u8", np.uint8, 32),
    ],
)
def test_matrix_instructions(kernel: str, dtype: type, depth: int) -> None:
    """The layouts are those of the PTX manual: a[g][k], b[g][k] by groups of four lanes."""
    a, b = (RANDOM.standard_normal((rows, depth)) * 30 for rows in (16, 8))
    a, b = (np.abs(x) if dtype == np.uint8 else x for x in (a, b))
    a, b = a.astype(dtype), b.astype(dtype)
    if dtype == np.float32:  # tf32 keeps ten bits of the mantissa
        a, b = ((x.view("uint32") & 0xFFFFE000).view("float32") for x in (a, b))
    c = np.zeros((16, 8), "int32" if depth == 32 else "float32")
    raw = [x.view("uint16") if dtype == ml_dtypes.bfloat16 else x for x in (a, b)]
    arguments = dict(zip("abc", [*raw, c], strict=True))
    traffic = launch(SOURCE, kernel, Grid([1], [32]), arguments, checked=True)
    want = a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-3)
    assert traffic.matrix_instructions == 1


def test_bytes_with_and_without_a_sign_multiply() -> None:
    a, b = (RANDOM.integers(low, low + 256, (n, 32)) for low, n in ((0, 16), (-128, 8)))
    c = np.zeros((16, 8), "int32")
    given = {"a": a.astype("uint8"), "b": b.astype("int8"), "c": c}
    launch(SOURCE, "multiply_u8_s8", Grid([1], [32]), given, checked=True)
    np.testing.assert_array_equal(c, a @ b.T)


@pytest.mark.parametrize("types", DOT_TYPES)
def test_dot_products_of_four_bytes(types: tuple[str, str]) -> None:
    """Bytes are signed or not as the instruction says; the sum wraps around."""
    dtypes = ["uint8" if kind == "u32" else "int8" for kind in types]
    a, b = (RANDOM.integers(0, 256, (32, 4)).astype("uint8").view(dtype) for dtype in dtypes)
    c = RANDOM.integers(-(2**31), 2**31, 32).astype("int32")
    c[0], a[0], b[0] = 2**31 - 1, 1, 1
    want = (a.astype("int64") * b).sum(1) + c
    given = {"a": a, "b": b, "c": c}
    traffic = launch(SOURCE, f"dot_{'_'.join(types)}", Grid([1], [32]), given, checked=True)
    np.testing.assert_array_equal(c, want.astype("uint32").astype("int32"))
    assert traffic.global_read_bytes == 3 * 128


def test_a_matrix_instruction_needs_the_whole_warp() -> None:
    a, b, c = (np.zeros(shape, "float16") for shape in ((16, 16), (8, 16), (16, 16)))
    with pytest.raises(Fault, match="all lanes"):
        launch(SOURCE, "multiply_f16", Grid([1], [31]), {"a": a, "b": b, "c": c}, checked=True)
