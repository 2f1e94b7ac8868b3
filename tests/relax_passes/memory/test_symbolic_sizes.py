"""E6: symbolic sizes by their upper bounds, in turns where they are equal, else from the pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

import relaxc
from frontends.size_bounds import split_bound
from relax_passes.analysis.size_bounds import SizeBounds
from relax_passes.memory.verify_offsets import OverlapError
from relax_passes.memory.verify_plan import verify_plan
from relax_passes.pipeline import default_pipeline
from relaxc.cli import main
from relaxc.errors import InvalidInput
from tests.relax_passes.memory.test_planted_bugs import F32, Planned

WIDTH = 16
WEIGHT = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype("float32") * 0.3


def chain(length: int = 5, inputs: tuple[str, ...] = ("x",)) -> onnx.ModelProto:
    """Products one after the other, of each input; its rows are symbolic."""
    nodes = []
    for name in inputs:
        value = name
        for k in range(length):
            nodes.append(helper.make_node("MatMul", [value, "w"], [f"{name}_p{k}"]))
            nodes.append(helper.make_node("Softmax", [f"{name}_p{k}"], [f"{name}_s{k}"], axis=0))
            value = f"{name}_s{k}"
        nodes.append(helper.make_node("MatMul", [value, "w"], [f"{name}_y"]))
    kind = TensorProto.FLOAT
    rows = dict(zip(inputs, ("n", "m"), strict=False))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info(x, kind, [rows[x], WIDTH]) for x in inputs],
        [helper.make_tensor_value_info(f"{x}_y", kind, [rows[x], WIDTH]) for x in inputs],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def expected(x: np.ndarray, length: int = 5) -> np.ndarray:
    for _ in range(length):
        x = np.exp(x @ WEIGHT)
        x = x / x.sum(axis=0)
    return x @ WEIGHT


def compiled(model: onnx.ModelProto, **options: object) -> relaxc.CompiledModel:
    return relaxc.compile(model, threads=1, progress=False, **options)


def allocations(model: relaxc.CompiledModel) -> dict[str, int]:
    return model.report.metrics["allocations_per_run"]


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype("float32")


@pytest.fixture(scope="module")
def bounded() -> relaxc.CompiledModel:
    return compiled(chain(), dynamic_shapes={"x": {0: "n<=32"}})


def test_an_upper_bound_puts_symbolic_sizes_into_the_arena(bounded) -> None:
    assert allocations(bounded) == {
        "arenas": 1,
        "outputs": 1,
        "storages of symbolic size": 0,
        "tensors of symbolic size": 0,
    }
    assert bounded.report.arena_bytes == bounded.report.lower_bound_bytes
    assert bounded.report.arena_bytes == 2 * 32 * WIDTH * 4
    assert bounded.inputs[0].shape == ("n", WIDTH)


@pytest.mark.parametrize("count", [1, 7, 32])
def test_any_size_up_to_the_bound_runs(bounded, count: int) -> None:
    x = rows(count)
    np.testing.assert_allclose(bounded(x), expected(x), rtol=1e-4, atol=1e-5)


def test_a_size_above_the_bound_is_refused(bounded, tmp_path: Path) -> None:
    for model in (bounded, relaxc.load(bounded.save(tmp_path / "m.so"))):
        with pytest.raises(
            InvalidInput, match="'x': the size n is 33, above its upper bound of 32"
        ):
            model(rows(33))
    # Who calls the entry point unchecked is stopped by the kernel that guards the arena.
    main, _ = bounded.entry()
    with pytest.raises(Exception, match="size n is above its upper bound of 32"):
        main(tvm.runtime.tensor(rows(33)))
    np.testing.assert_allclose(bounded(rows(5)), expected(rows(5)), rtol=1e-4, atol=1e-5)


def test_equal_sizes_take_turns() -> None:
    """Two tensors are alive at once; without turns each of the ten is allocated."""
    model = compiled(chain())
    found = allocations(model)
    assert found["storages of symbolic size"] == 2
    assert found["tensors of symbolic size"] == found["arenas"] == 0
    plain = compiled(chain(), passes=default_pipeline().with_options("plan_memory", reuse=False))
    assert allocations(plain)["tensors of symbolic size"] == 10
    for count in (1, 9, 100):
        x = rows(count)
        np.testing.assert_allclose(model(x), expected(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(model(x), plain(x))


def test_all_kinds_live_in_one_function() -> None:
    model = compiled(chain(inputs=("x", "z")), dynamic_shapes={"x": {0: "n<=8"}})
    found = allocations(model)
    assert found["arenas"] == 1 and found["storages of symbolic size"] == 2
    assert model.report.arena_bytes == 2 * 8 * WIDTH * 4
    y, v = model(rows(8), rows(40))
    np.testing.assert_allclose(y, expected(rows(8)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(v, expected(rows(40)), rtol=1e-4, atol=1e-5)


def test_a_lower_bound_alone_plans_nothing() -> None:
    """P7: torch's Dim(min=4) says nothing of how large a size may become. Both are promises."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Softmax(0))
    for dim, arenas, wrong, text in (
        (torch.export.Dim("n", min=4), 0, 3, "the size n is 3, below its lower bound of 4"),
        (torch.export.Dim("n", max=64), 1, 65, "the size n is 65, above its upper bound of 64"),
    ):
        module = torch.nn.Sequential(layer, layer).eval()
        example = (torch.zeros(5, WIDTH),)
        model = compiled(module, example_inputs=example, dynamic_shapes=({0: dim},))
        assert allocations(model)["arenas"] == arenas
        x = torch.from_numpy(rows(9))
        np.testing.assert_allclose(
            model(x).numpy(), module(x).detach().numpy(), rtol=1e-4, atol=1e-5
        )
        with pytest.raises(InvalidInput, match=text):
            model(torch.from_numpy(rows(wrong)))


@pytest.mark.parametrize(
    ("dim", "reason"),
    [
        ("n<=0", "an upper bound is a positive number, not '0'"),
        *[("n<=b", "not 'b'"), ("<=4", "has a name, not ''")],
        *[
            (wrong, f"written name<=number, not '{wrong}'")
            for wrong in ("n<4", "n=4", "n>=4", "n≤4")
        ],
    ],
)
def test_bounds_that_are_none_are_refused(dim: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        compiled(chain(), dynamic_shapes={"x": {0: dim}})


def test_the_command_line_takes_bounds(tmp_path: Path) -> None:
    onnx.save(chain(1), str(tmp_path / "m.onnx"))
    paths = [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so")]
    assert main(["compile", *paths, "--shape", "x=n<=8,", "--threads", "1"]) == 0
    model = relaxc.load(tmp_path / "m.so")
    np.testing.assert_allclose(model(rows(8)), expected(rows(8), 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidInput, match="upper bound of 8"):
        model(rows(9))


def test_two_bounds_of_one_name_are_refused() -> None:
    shapes = {"x": {0: "n<=4"}, "z": {0: "n<=5"}}
    with pytest.raises(InvalidInput, match="at most 4 and at most 5"):
        compiled(chain(inputs=("x", "z")), dynamic_shapes=shapes)


def test_a_tensor_without_elements_takes_no_bytes_whatever_its_other_sizes_are() -> None:
    """The planner folds the product to 0, so the verifier must bound it too."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    bounds = SizeBounds(relax.Function([x], relax.SeqExpr([], x), x.ty))
    assert bounds.bytes_of(relax.TensorType((2, n, 0), "float32")) == 0
    assert bounds.bytes_of(x.ty) is None


def test_bounds_are_computed_through_expressions() -> None:
    assert split_bound("n <= 12") == ("n", 12) and split_bound("n") == ("n", None)
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m), F32))
    func = relax.Function([x], relax.SeqExpr([], x), x.ty)
    bounds = SizeBounds(func.with_attr("tir_var_upper_bound", {"n": 9}))
    assert bounds.bytes_of(relax.TensorType(((n + 1) // 2, n * 2), F32)) == 5 * 18 * 4
    assert bounds.bytes_of(relax.TensorType((n, m), F32)) is None


def symbolic_pair(p: Planned, second: int) -> relax.Expr:
    """Cut two tensors of n and n * `second` elements from one storage of n * 4 bytes."""
    n = tirx.Var("n", "int64")
    p.x = relax.Var("x", relax.TensorType((n,), F32))
    builder = p.builder
    with builder.function("main", [p.x], attrs={"relax.force_pure": True}):
        size = relax.ShapeExpr([n * 4])
        storage = builder.emit(relax.op.memory.alloc_storage(size, 0, "global", "uint8"))
        tensors = []
        for name, count in (("a", n), ("b", n * second)):
            shape = relax.ShapeExpr([count])
            cut = relax.op.memory.alloc_tensor(storage, 0, shape, F32)
            tensors.append(builder.emit(cut, name))
        for tensor in tensors:
            builder.emit(relax.Call(relax.ExternFunc("write"), [tensor]), "_")
        call = relax.Call(relax.ExternFunc("read"), tensors)
        builder.emit(call, "_")
        builder.emit_func_output(p.x)
    return builder.get()["main"]


@pytest.mark.parametrize(
    ("second", "reason"), [(1, "a .* and b .* share bytes"), (2, "b may not fit its storage")]
)
def test_the_verifier_follows_symbolic_storages(second: int, reason: str) -> None:
    with pytest.raises(OverlapError, match=reason):
        verify_plan(symbolic_pair(Planned(), second))
