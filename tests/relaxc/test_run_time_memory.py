"""Outputs of the caller, one copy of the weights, a workspace a thread, no growth."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper

import relaxc
from frontends.imported_model import TensorSpec
from relaxc.errors import InvalidInput
from relaxc.report import Report
from relaxc.run_time_pool import KEPT_SIZES, POOL, ROOM, CallSizes, RunTimePool, _resident_bytes

WIDTH = 64


@pytest.fixture(scope="module")
def model() -> relaxc.CompiledModel:
    """Two outputs of a symbolic size; static and symbolic intermediates."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH)).astype("float32"), "w")
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Softmax", ["p"], ["q"], axis=1),
        node("MatMul", ["q", "w"], ["y"]),
        node("MatMul", ["s", "w"], ["t"]),
        node("Softmax", ["t"], ["u"], axis=0),
        node("MatMul", ["u", "w"], ["z"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("x", kind, ["n", WIDTH]),
            helper.make_tensor_value_info("s", kind, [WIDTH, WIDTH]),
        ],
        [
            helper.make_tensor_value_info("y", kind, ["n", WIDTH]),
            helper.make_tensor_value_info("z", kind, [WIDTH, WIDTH]),
        ],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return relaxc.compile(proto, threads=1, progress=False)


def inputs(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((r, WIDTH)).astype("float32") for r in (rows, WIDTH))


def addresses(model: relaxc.CompiledModel, runs: int, rows: int = 8) -> list[list[int]]:
    """Return for each run the addresses of all tensors that its kernels are given, in order."""
    given = [tvm.runtime.tensor(value) for value in inputs(rows)]
    model(*given)
    machine = model._local.state[0]
    seen: list[list[int]] = []

    def observe(_: Any, symbol: str, before: bool, __: Any, *args: Any) -> int:
        if before and not symbol.startswith("vm."):
            tensors = [a for a in args if isinstance(a, tvm.runtime.Tensor)]
            seen[-1] += [tensor.data_ptr() for tensor in tensors]
        return 0

    machine.set_instrument(observe)
    try:
        for _ in range(runs):
            seen.append([])
            model(*given)
    finally:
        machine.set_instrument(lambda *_: 0)
    return seen


def test_outputs_are_written_into_the_callers_arrays(model) -> None:
    x, s = inputs(3)
    fresh_y, fresh_z = model(x, s)
    y, z = np.empty((3, WIDTH), "float32"), np.empty((WIDTH, 2 * WIDTH), "float32")[:, ::2]
    model.bind_outputs(y, z=z)
    try:
        first, second = model(x, s)
        assert first is y and second is z
        np.testing.assert_array_equal(y, fresh_y)
        np.testing.assert_array_equal(z, fresh_z)
        with pytest.raises(InvalidInput, match=r"output 'y' is bound to float32\[3, 64\]"):
            model(*inputs(4))
    finally:
        model.bind_outputs()
    assert model(x, s)[0] is not y


def test_outputs_are_fresh_by_default(model) -> None:
    first, _ = model(*inputs(3))
    before = first.copy()
    model(*inputs(3, seed=1))
    np.testing.assert_array_equal(first, before)


def test_torch_and_tvm_tensors_can_be_bound(model) -> None:
    torch = pytest.importorskip("torch")
    x, s = inputs(3)
    want_y, want_z = model(x, s)
    y, z = torch.zeros(3, WIDTH), tvm.runtime.tensor(np.zeros((WIDTH, WIDTH), "float32"))
    model.bind_outputs(y, z)
    try:
        assert model(x, s)[0] is y
    finally:
        model.bind_outputs()
    np.testing.assert_array_equal(y.numpy(), want_y)
    np.testing.assert_array_equal(z.numpy(), want_z)


@pytest.mark.parametrize(
    ("args", "named", "text"),
    [
        ((np.empty((3, WIDTH), "float64"),), {}, "gives float32"),
        ((np.empty((3, WIDTH + 1), "float32"),), {}, r"gives \['n', 64\]"),
        ((), {"w": np.empty(3, "float32")}, "no output is called 'w': y, z"),
        ((None, None, None), {}, "has 2 outputs, got 3"),
        ((np.empty((3, WIDTH), "float32"),), {"y": np.empty(3)}, "by position and by name"),
        ((np.broadcast_to(np.float32(0), (3, WIDTH)),), {}, "read-only"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(model, args, named, text) -> None:
    with pytest.raises(InvalidInput, match=text):
        model.bind_outputs(*args, **named)


def test_arrays_that_cannot_be_written_are_refused(model) -> None:
    torch = pytest.importorskip("torch")
    shape = (3, WIDTH)
    for array, text in (
        (np.broadcast_to(np.zeros(WIDTH, "float32"), shape), "read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros(WIDTH, "float32"), shape, (0, 4)), "share"),
        (torch.zeros(WIDTH).expand(shape), "elements of the array share memory"),
        (np.lib.stride_tricks.as_strided(np.zeros(WIDTH + 2, "float32"), shape, (4, 4)), "share"),
        (np.lib.stride_tricks.as_strided(np.zeros(192, "float32"), shape, (254, 4)), "share"),
        (torch.zeros(2 * WIDTH + 1).as_strided(shape, (1, 2)), "share"),
        (torch.zeros(shape, requires_grad=True), "bind its .detach()"),
        (torch.zeros(shape, device="meta"), "meta device"),
    ):
        with pytest.raises(InvalidInput, match=text):
            model.bind_outputs(array)


def test_axes_that_interleave_without_a_shared_element_can_be_bound(model) -> None:
    """By rows: the elements 0, 3, 6, ..., then 2, 5, 8, ..., then 4, 7, 10, ..."""
    torch = pytest.importorskip("torch")
    model.bind_outputs(torch.zeros(4 * WIDTH).as_strided((3, WIDTH), (2, 3)))
    model.bind_outputs(np.zeros((WIDTH, 3), "float32")[::-1].T)
    model.bind_outputs()


def test_outputs_bound_to_one_memory_are_refused(model) -> None:
    """Beside each other in one buffer they may lie: rows of it, or columns."""
    torch = pytest.importorskip("torch")
    both = np.zeros((WIDTH, 2 * WIDTH), "float32")
    model.bind_outputs(both[:3, :WIDTH], both[:, WIDTH:])
    model.bind_outputs()
    rows = np.zeros((WIDTH + 2, WIDTH), "float32")
    tensor = tvm.runtime.tensor(np.zeros((WIDTH, WIDTH), "float32"))
    for y, z in (
        (rows[:3], rows[2:]),
        (rows[:3], torch.from_numpy(rows)[2:]),
        (torch.from_dlpack(tensor)[:3], tensor),
    ):
        with pytest.raises(InvalidInput, match="outputs 'y' and 'z' are bound to arrays that"):
            model.bind_outputs(y, z)


def test_bound_outputs_are_the_threads_own(model) -> None:
    x, s = inputs(3)
    y = np.zeros((3, WIDTH), "float32")
    model.bind_outputs(y)
    elsewhere = []
    worker = threading.Thread(target=lambda: elsewhere.append(model(x, s)[0]))
    worker.start()
    worker.join()
    model.bind_outputs()
    assert elsewhere[0] is not y and not y.any()


def test_repeated_runs_use_the_memory_of_the_first(model) -> None:
    """Each tensor of a run lies where one lay before: what was freed is what is handed out."""
    runs = addresses(model, runs=20)
    known = set().union(*runs[:4])
    assert len(set(runs[0])) >= 6
    for run in runs[4:]:
        assert set(run) <= known


def test_the_pool_returns_what_past_sizes_asked_for(model) -> None:
    """40 sizes of some 15 MB each: what eight of them ask for may stay."""
    s = inputs(1)[1]
    before = most = _resident_bytes() or 0
    for k in range(40):
        model(np.zeros((20_000 + 16 * k, WIDTH), "float32"), s)
        most = max(most, _resident_bytes() or 0)
    assert before and most - before < ROOM + (KEPT_SIZES + 4) * 16 * 2**20
    assert len(POOL._sizes) <= KEPT_SIZES


def test_models_of_one_size_are_not_watched(model) -> None:
    fixed = TensorSpec("x", (3, 4), "float32")
    inside = Report(metrics={"allocations_per_run": {"tensors of symbolic size": 2}})
    assert model._sizes.vary
    assert not CallSizes([fixed], [fixed], Report()).vary
    # What only the data inside decides is seen by nothing but the number of calls.
    hidden = CallSizes([fixed], [fixed], inside, pool := RunTimePool())
    for _ in range(64):
        hidden.note((3, 4))
    assert hidden.vary and len(pool._sizes) == 4


def test_loaded_models_share_their_weights(model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "model.so")
    one, other = relaxc.load(path), relaxc.load(path)
    seen: list[set[int]] = [set(addresses(m, runs=1)[0]) for m in (one, other)]
    worker = threading.Thread(target=lambda: seen.append(set(addresses(one, runs=1)[0])))
    worker.start()
    worker.join()
    weight = 4 * WIDTH * WIDTH
    assert weight and all(seen[0] & other for other in seen[1:])
    np.testing.assert_array_equal(one(*inputs(3))[0], other(*inputs(3))[0])


def test_a_file_written_anew_is_loaded_anew(model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "model.so")
    one = relaxc.load(path)
    model.save(path)
    assert relaxc.load(path)._executable is not one._executable
    again = relaxc.load(path)
    assert again._executable is relaxc.load(path)._executable


def test_threads_work_in_memory_of_their_own(model) -> None:
    """Two calls at once: the arena of the one is not the other's."""
    barrier = threading.Barrier(2, timeout=60)
    arenas: list[set[int]] = []

    def work(seed: int) -> None:
        given = [tvm.runtime.tensor(value) for value in inputs(8, seed)]
        model(*given)
        seen: list[Any] = []

        def observe(_: Any, symbol: str, before: bool, __: Any, *args: Any) -> int:
            if before and symbol.startswith(("matmul", "softmax")):
                seen.append(args[-1])
                if len(seen) in (1, 6):  # both are inside a run, from its first kernel to its last
                    barrier.wait()
            return 0

        model._local.state[0].set_instrument(observe)
        model(*given)
        static = [t for t in seen if isinstance(t, tvm.runtime.Tensor) and t.shape[0] == WIDTH]
        arenas.append({tensor.data_ptr() for tensor in static})

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(arenas) == 2 and all(arenas) and not arenas[0] & arenas[1]
