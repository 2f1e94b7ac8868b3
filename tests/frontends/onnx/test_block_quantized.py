"""Weights packed several to a byte, against ONNX Runtime (O14: MatMulNBits, blocked QDQ)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.quantized_models import check, run_compiled, single_node

RNG = np.random.default_rng(5)
MICROSOFT = "com.microsoft"
FLOAT = TensorProto.FLOAT


def packed(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype("uint8")


def matmul_inputs(bits: int, block: int, depth: int, zeros: str) -> list[np.ndarray | None]:
    """Return x, weight, scales, zero points for 6 columns."""
    columns, blocks = 6, -(-depth // block)
    zero: np.ndarray | None = None
    if zeros == "packed":
        zero = packed(columns, -(-blocks * bits // 8))
    elif zeros == "floats":
        zero = (RNG.random((columns, blocks)) * 2**bits).astype("float32")
    return [
        RNG.standard_normal((2, 3, depth)).astype("float32"),
        packed(columns, blocks, block * bits // 8),
        (RNG.random((columns, blocks)) * 0.1).astype("float32"),
        zero,
    ]


@pytest.mark.parametrize(
    ("bits", "block", "depth", "zeros"),
    [
        (4, 32, 96, "none"), (4, 32, 96, "packed"), (4, 32, 72, "floats"),
        (8, 16, 40, "none"), (8, 16, 40, "packed"), (2, 16, 48, "none"), (2, 16, 48, "packed"),
    ],
)  # fmt: skip
def test_matmul_nbits(bits: int, block: int, depth: int, zeros: str) -> None:
    """A last block may be incomplete, and a row of zero points end inside a byte."""
    check(
        "MatMulNBits", matmul_inputs(bits, block, depth, zeros), [FLOAT], domain=MICROSOFT,
        constant=(1, 2) if zeros == "none" else (1, 2, 3), bits=bits, block_size=block, K=depth,
        N=6, tolerance=1e-4,
    )  # fmt: skip


def test_matmul_nbits_with_bias_and_flat_parameters() -> None:
    x, weight, scales, zero = matmul_inputs(4, 16, 32, "packed")
    bias = RNG.standard_normal(6).astype("float32")
    assert scales is not None and zero is not None
    inputs = [x, weight, scales.reshape(-1), zero.reshape(-1), None, bias]
    check(
        "MatMulNBits", inputs, [FLOAT], domain=MICROSOFT, constant=(1, 2, 3, 5), bits=4,
        block_size=16, K=32, N=6, tolerance=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("zeros", "constant", "length"),
    [("none", (1, 2), 72), ("none", (1, 2, 4), 96), ("floats", (1, 2, 3, 4), 72)],
)
def test_rows_that_are_quantized_by_other_blocks(
    zeros: str, constant: tuple[int, ...], length: int
) -> None:
    """As GPTQ orders them by activation; the order may be padded as the weight is."""
    groups = RNG.integers(0, 3, length).astype("int32")
    inputs = [*matmul_inputs(4, 32, 72, zeros), groups]
    check(
        "MatMulNBits", inputs, [FLOAT], domain=MICROSOFT, constant=constant, bits=4,
        block_size=32, K=72, N=6, tolerance=1e-4,
    )  # fmt: skip


def test_rows_of_other_blocks_with_packed_zero_points() -> None:
    """ONNX Runtime leaves these zero points out where there is an order; NumPy does not."""
    groups = RNG.integers(0, 3, 96).astype("int32")
    inputs = [*matmul_inputs(4, 32, 96, "packed"), groups]
    model, feeds = single_node(
        "MatMulNBits", inputs, [FLOAT], domain=MICROSOFT, constant=(1, 2, 3, 4), bits=4,
        block_size=32, K=96, N=6,
    )  # fmt: skip
    x, weight, scales, zeros, _ = inputs
    assert x is not None and weight is not None and scales is not None and zeros is not None
    codes, zero = (np.stack([p & 15, p >> 4], -1).reshape(6, -1) for p in (weight, zeros))
    matrix = (codes.astype("float32") - zero[:, groups]) * scales[:, groups]
    (result,) = run_compiled(model, feeds)
    np.testing.assert_allclose(result, x @ matrix.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (24, "block_size 24, K 32, N 6: a block is a power of two of at least 16"),
        (32, r"packed weights have shape \[6, 2, 8\] where block_size 32, .* need \[6, 1, 16\]|"
             r"scales have shape \[6, 2\] where block_size 32, .* need \[6, 1\]"),
        (64, r"packed weights have shape \[6, 2, 8\] where block_size 64, .* need \[6, 1, 32\]"),
    ],
)  # fmt: skip
def test_a_block_size_of_another_weight(block: int, message: str) -> None:
    """As many bytes may do for another block size: the scales tell them apart."""
    model, _ = single_node(
        "MatMulNBits", matmul_inputs(4, 16, 32, "none"), [FLOAT], domain=MICROSOFT,
        constant=(1, 2), bits=4, block_size=block, K=32, N=6,
    )  # fmt: skip
    with pytest.raises(InvalidModel, match=message):
        import_onnx(model)


def test_a_group_that_is_not_there() -> None:
    inputs = [*matmul_inputs(4, 16, 32, "none"), np.full(32, 2, "int32")]
    model, _ = single_node(
        "MatMulNBits", inputs, [FLOAT], domain=MICROSOFT, constant=(1, 2, 4), bits=4,
        block_size=16, K=32, N=6,
    )  # fmt: skip
    with pytest.raises(InvalidModel, match="the group of a row"):
        import_onnx(model)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_of_packed_rows(bits: int, zeros: bool) -> None:
    rows, width, block = 7, 64, 16
    inputs = [
        packed(rows, width * bits // 8), np.array([[3, -1, 0]]),
        (RNG.random((rows, width // block)) * 0.1).astype("float32"),
        packed(rows, width // block * bits // 8) if zeros else None,
    ]  # fmt: skip
    check(
        "GatherBlockQuantized", inputs, [FLOAT], domain=MICROSOFT, bits=bits, block_size=block,
        constant=(0, 2, 3) if zeros else (0, 2), gather_axis=0, quantize_axis=1,
    )  # fmt: skip


def test_gather_of_sub_byte_rows() -> None:
    table = RNG.integers(-8, 8, (5, 32)).astype(ml_dtypes.int4)
    scales = (RNG.random((5, 2)) * 0.1).astype("float32")
    model, feeds = single_node(
        "GatherBlockQuantized", [table, np.array([4, 0, -2]), scales], [FLOAT], domain=MICROSOFT,
        block_size=16, constant=(0, 2), gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    (result,) = run_compiled(model, feeds)
    expected = table.astype("float32") * np.repeat(scales, 16, axis=1)
    np.testing.assert_allclose(result, expected[[4, 0, 3]], rtol=1e-6)
