"""E8: planning off and on give the same bits; a fault that the verifier cannot see is named."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

import relax_passes.memory.in_place as in_place
import relax_passes.memory.plan_memory as plan_memory
import relaxc
from relax_passes.memory.plan_offsets import Plan
from relaxc.check_memory import check_memory
from relaxc.cli import main
from relaxc.errors import CompileError
from tests.relax_passes.memory.branching_models import inception
from tests.relaxc.small_models import square_chain

SIZE = 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A chain of products with a residual; sums may run in place, products may not."""
    nodes = []
    value = "x"
    for k in range(4):
        nodes.append(helper.make_node("MatMul", [value, f"w{k}"], [f"product{k}"]))
        nodes.append(helper.make_node("Transpose", [f"product{k}"], [f"turned{k}"], perm=[1, 0]))
        nodes.append(helper.make_node("Add", [f"turned{k}", value], [f"sum{k}"]))
        value = f"sum{k}"
    model = square_chain(SIZE, nodes, value, [f"w{k}" for k in range(4)])
    onnx.save(model, tmp_path / "chain.onnx")
    return tmp_path / "chain.onnx"


def test_parts_in_place_change_no_bit() -> None:
    """Without reuse a concatenation is copied; the kernels are the same otherwise."""
    found = check_memory(inception(1, size=5), threads=1)
    assert found.agrees, found.difference


def test_a_scalar_input_stays_one() -> None:
    nodes = [helper.make_node("Mul", ["x", "s"], ["y"])]
    tensors = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 3]), ("s", []), ("y", [2, 3]))
    ]
    graph = helper.make_graph(nodes, "scale", tensors[:2], tensors[2:])
    assert check_memory(helper.make_model(graph, ir_version=10), threads=1).agrees


def test_types_that_numpy_lacks_are_checked() -> None:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "x"], ["c"]),
        helper.make_node("Cast", ["s"], ["t"], to=onnx.TensorProto.BFLOAT16),
        helper.make_node("Mul", ["c", "t"], ["y"]),
    ]
    kinds = {"x": onnx.TensorProto.BFLOAT16, "s": onnx.TensorProto.FLOAT8E4M3FN}
    tensors = [helper.make_tensor_value_info(n, k, [4, 4]) for n, k in kinds.items()]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, [4, 4])
    graph = helper.make_graph(nodes, "half", tensors, [result])
    found = check_memory(helper.make_model(graph, ir_version=10), threads=1)
    assert found.agrees and found.kernel_calls, found.difference


def test_reuse_and_poison_change_no_bit(path: Path) -> None:
    found = check_memory(path, threads=1)
    assert found.agrees, found.difference
    assert 0 < found.arena_bytes < found.bytes_without_reuse
    assert found.kernel_calls >= 4


def test_a_kernel_that_must_not_run_in_place_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier trusts what kernels say of themselves; here they all say they may."""

    def lie(func: object) -> list[tuple[int, int]]:
        shapes = [str(param.ty) for param in func.params]  # type: ignore[attr-defined]
        last = len(shapes) - 1
        return [(k, last) for k, shape in enumerate(shapes[:-1]) if shape == shapes[-1]]

    monkeypatch.setattr(in_place, "in_place_operands", lie)
    found = check_memory(path, threads=1)
    assert not found.agrees
    assert "writes other bits" in found.difference


def test_an_overlap_is_refused_by_the_verifier(path: Path, monkeypatch) -> None:
    def overlap(buffers, **_):
        return Plan((0,) * len(buffers), max((b[2] for b in buffers), default=0), 0)

    monkeypatch.setattr(plan_memory, "plan_offsets", overlap)
    with pytest.raises(CompileError, match="share bytes"):
        check_memory(path, threads=1)


def test_ranges_one_step_short_are_refused_by_the_verifier(monkeypatch) -> None:
    """Each result then lies where the operand lies that the same kernel still reads."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Transpose", ["product"], ["turned"], perm=[1, 0]),
        helper.make_node("Softmax", ["turned"], ["y"], axis=0),
    ]
    real = plan_memory.analyze_live_ranges

    def short(*arguments):
        live = real(*arguments)
        for storage in live.storages:
            storage.upper -= storage.planned
        return live

    monkeypatch.setattr(plan_memory, "analyze_live_ranges", short)
    with pytest.raises(CompileError, match="product .* and turned .* share bytes from 0"):
        relaxc.compile(square_chain(SIZE, nodes, "y", ["w"]), threads=1, progress=False)


def test_stale_reads_show_as_poison(path: Path, monkeypatch) -> None:
    """A buffer that the planner thinks dead one step early is poisoned before its last reader."""
    real = plan_memory.analyze_live_ranges

    def short(*arguments):
        live = real(*arguments)
        for storage in live.storages:
            if storage.planned and storage.upper > storage.lower + 2:
                storage.upper -= 1
        return live

    monkeypatch.setattr(plan_memory, "analyze_live_ranges", short)
    monkeypatch.setattr(in_place, "in_place_operands", lambda func: [])
    monkeypatch.setattr("relax_passes.verify.verify_plan", lambda func, mod: None)
    found = check_memory(path, threads=1)
    assert not found.agrees


def test_command_line(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    assert main(["check", str(path), "--memory", "--quiet", "--threads", "1"]) == 0
    assert "same bits" in capsys.readouterr().out
