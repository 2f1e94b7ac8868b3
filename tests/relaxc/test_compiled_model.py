"""Calling a compiled model: by position and name, in every array kind, checked, from threads."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import tvm

from relaxc.compiled_model import CompiledModel
from relaxc.errors import InvalidInput

A = np.arange(8, dtype="float32").reshape(2, 4)
B = np.full((2, 4), 3, "float32")


def test_several_outputs_are_a_tuple_and_one_is_an_array(
    pair_model: CompiledModel, square_model: CompiledModel
) -> None:
    total, scaled = pair_model(A, B)
    np.testing.assert_array_equal(total, A + B)
    np.testing.assert_array_equal(scaled, A * B)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(square_model(x), x * x)


def test_inputs_by_name_in_any_order(pair_model: CompiledModel) -> None:
    for result in (pair_model(b=B, a=A), pair_model(A, b=B)):
        np.testing.assert_array_equal(result[0], A + B)


def test_symbolic_dimension_takes_any_size(pair_model: CompiledModel) -> None:
    for batch in (0, 1, 5):
        a = np.random.default_rng(0).standard_normal((batch, 4)).astype("float32")
        np.testing.assert_array_equal(pair_model(a, a)[0], a + a)


def test_strided_unaligned_and_read_only_arrays(pair_model: CompiledModel) -> None:
    wide = np.arange(64, dtype="float32").reshape(8, 8)
    offset = np.arange(9, dtype="float32")[1:].reshape(2, 4)
    frozen = A.copy()
    frozen.flags.writeable = False
    for a in (wide[:2, ::2], wide.T[:2, 4:], offset, frozen, np.asfortranarray(A)):
        np.testing.assert_array_equal(pair_model(a, B)[0], a + B)
        np.testing.assert_array_equal(pair_model(B, a)[1], a * B)


@pytest.mark.parametrize(
    ("batch", "strides"), [(1, (4, 4)), (1, (64, 4)), (0, (0, 0)), (0, (4, 4))]
)
def test_strides_that_address_nothing_do_not_matter(
    pair_model: CompiledModel, batch: int, strides: tuple[int, int]
) -> None:
    """NumPy gives an axis of one element, or of an empty array, any stride."""
    raw = np.zeros(256, "uint8")
    aligned = raw[-raw.ctypes.data % 64 :]  # aligned, so that it is passed without a copy
    a = np.ndarray((batch, 4), "float32", aligned, strides=strides)
    a[:] = [1, 2, 3, 4]
    assert a.flags.c_contiguous and a.strides == strides
    np.testing.assert_array_equal(pair_model(a, a)[0], a + a)
    wrapped = tvm.runtime.from_dlpack(a)
    np.testing.assert_array_equal(pair_model(wrapped, wrapped)[0].numpy(), a + a)


def test_outputs_stay_valid_after_the_next_call(pair_model: CompiledModel) -> None:
    first = pair_model(A, B)[0]
    copy = first.copy()
    for _ in range(3):
        pair_model(B, B)
    np.testing.assert_array_equal(first, copy)
    first[0, 0] = 7  # an output is the caller's: writable, and no one else's
    np.testing.assert_array_equal(pair_model(A, B)[0], copy)


def test_torch_in_gives_torch_out(pair_model: CompiledModel) -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(8, dtype=torch.float32).reshape(2, 4).requires_grad_()
    strided = torch.arange(16, dtype=torch.float32).reshape(4, 4).T[:2]
    total, scaled = pair_model(a, strided)
    assert isinstance(total, torch.Tensor) and isinstance(scaled, torch.Tensor)
    one = torch.arange(4.0).as_strided((1, 4), (1, 1))
    torch.testing.assert_close(pair_model(one, one)[0], one + one)
    torch.testing.assert_close(total, a.detach() + strided)
    torch.testing.assert_close(
        pair_model(a, torch.arange(9.0)[1:].reshape(2, 4))[1][0, 1].item(), 2.0
    )


def test_dlpack_in_gives_tensors_that_speak_dlpack(pair_model: CompiledModel) -> None:
    total, _ = pair_model(tvm.runtime.tensor(A), tvm.runtime.tensor(B))
    assert isinstance(total, tvm.runtime.Tensor)
    np.testing.assert_array_equal(np.from_dlpack(total), A + B)


def test_a_foreign_dlpack_object_is_enough(pair_model: CompiledModel) -> None:
    class Foreign:
        """An array that only has what the DLPack protocol and the input check ask for."""

        def __init__(self, array: np.ndarray) -> None:
            self._array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **options: object) -> object:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._array.__dlpack_device__()

    total, _ = pair_model(Foreign(A), Foreign(np.arange(9, dtype="float32")[1:].reshape(2, 4)))
    np.testing.assert_array_equal(np.from_dlpack(total), A + A + 1)


def test_nan_goes_in_and_comes_out(square_model: CompiledModel) -> None:
    assert np.isnan(square_model(np.full((2, 3), np.nan, "float32"))).all()


@pytest.mark.parametrize(
    ("args", "named", "texts"),
    [
        ((A, B, A), {}, ["2 inputs", "got 3"]),
        ((A,), {}, ["missing input: b"]),
        ((A, B), {"c": A}, ["'c'", "a, b"]),
        ((A,), {"a": A}, ["'a'", "by position and by name"]),
        ((A, B.astype("float64")), {}, ["'b'", "dtype", "float32[batch, 4]", "float64[2, 4]"]),
        ((A, B[0]), {}, ["'b'", "rank", "float32[4]"]),
        ((A, B[:, :3]), {}, ["'b'", "shape", "float32[batch, 4]", "float32[2, 3]"]),
        ((A, B[:1]), {}, ["'b'", "batch is 2 in 'a'", "float32[1, 4]"]),
        ((A, [[1.0] * 4] * 2), {}, ["'b'", "DLPack", "list"]),
        ((A, None), {}, ["'b'", "NoneType"]),
    ],
)
def test_wrong_arguments_name_the_input_and_both_types(
    pair_model: CompiledModel, args: tuple, named: dict, texts: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        pair_model(*args, **named)
    for text in texts:
        assert text in str(caught.value)


def test_threads_share_one_model(pair_model: CompiledModel) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            a, b = (rng.standard_normal((seed + 1, 4)).astype("float32") for _ in range(2))
            total, scaled = pair_model(a, b)
            if not (np.array_equal(total, a + b) and np.array_equal(scaled, a * b)):
                failures.append(f"thread {seed}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_repr_shows_the_signature(pair_model: CompiledModel) -> None:
    assert "a: float32[batch, 4]" in repr(pair_model) and "llvm" in repr(pair_model)


def test_a_model_is_pickled_with_its_code(square_model: CompiledModel, tmp_path: Path) -> None:
    twin = pickle.loads(pickle.dumps(square_model))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(twin(x), x * x)
    assert twin.save(tmp_path / "again.so").exists()


def test_a_deep_copy_is_the_model_itself(square_model: CompiledModel) -> None:
    assert copy.deepcopy([square_model])[0] is square_model


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_tensor_without_dense_elements_is_refused(square_model: CompiledModel) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match="'x': a tensor on the meta device"):
        square_model(torch.ones(2, 3, device="meta"))
    for sparse in (torch.eye(2, 3).to_sparse(), torch.eye(2, 3).to_sparse_csr()):
        with pytest.raises(InvalidInput, match="'x': a tensor of layout torch.sparse"):
            square_model(sparse)
