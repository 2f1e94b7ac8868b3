"""Buckets: one file, several static versions, padding only where it is proved sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import relaxc
from relaxc.buckets import MAX_VERSIONS, Buckets, entry_name
from relaxc.errors import InvalidInput
from tests.frontends.onnx.run_model import make_model, run_reference
from tests.relaxc.small_models import affine_relu

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((64, 64)).astype("float32")


def dense() -> onnx.ModelProto:
    """Return a model whose rows do not depend on each other, along both symbolic axes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    return make_model(nodes, {"x": ("float32", ["batch", "n", 64])}, ["y"], {"w": WEIGHT})


def softmax() -> onnx.ModelProto:
    """Return a model that mixes the places along n."""
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=1)]
    return make_model(nodes, {"x": ("float32", ["batch", "n", 64])}, ["y"])


def check(compiled: relaxc.CompiledModel, model: onnx.ModelProto, *shape: int) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    (expected,) = run_reference(model, {"x": x})
    result = compiled(x)
    assert result.shape == expected.shape and result.flags.c_contiguous
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def padded() -> relaxc.CompiledModel:
    return relaxc.compile(dense(), threads=1, dynamic_shapes={"x": {1: [16, 4]}})


def test_every_size_is_right(padded: relaxc.CompiledModel) -> None:
    for n in (1, 3, 4, 5, 16, 17):
        check(padded, dense(), 2, n, 64)


def test_the_smallest_bucket_that_fits_is_chosen(padded: relaxc.CompiledModel) -> None:
    assert padded.buckets == Buckets({"n": (4, 16)}, ("n",))
    chosen = {n: padded.buckets.choose({"n": n}) for n in (0, 1, 4, 5, 16, 17)}
    assert chosen == {0: None, 1: {"n": 4}, 4: {"n": 4}, 5: {"n": 16}, 16: {"n": 16}, 17: None}


def test_the_chosen_version_is_the_one_that_runs(
    padded: relaxc.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    machine = type(padded)._machine

    def spy(self: relaxc.CompiledModel, entry: str) -> object:
        ran.append(entry)
        return machine(self, entry)

    monkeypatch.setattr(type(padded), "_machine", spy)
    for n in (3, 16, 17):
        padded(np.ones((1, n, 64), "float32"))
    assert ran == [entry_name({"n": 4}), entry_name({"n": 16}), "main"]


def test_an_empty_axis_runs_the_symbolic_version(padded: relaxc.CompiledModel) -> None:
    assert padded(np.ones((2, 0, 64), "float32")).shape == (2, 0, 64)


def test_a_model_that_mixes_places_is_not_padded() -> None:
    model = relaxc.compile(softmax(), threads=1, dynamic_shapes={"x": {1: [4, 16]}})
    assert model.buckets.padded == ()
    assert model.buckets.choose({"n": 16}) == {"n": 16} and not model.buckets.choose({"n": 5})
    (declined,) = [entry for entry in model.report.declined if entry[0] == "buckets"]
    assert declined[1] == "padding n" and "along n" in declined[2]
    for n in (3, 4, 5, 16, 20):
        check(model, softmax(), 2, n, 64)


def test_buckets_of_two_dimensions() -> None:
    one, eight = np.array([1, 8])  # sizes of NumPy are sizes
    wanted = {"x": {one - 1: [one, eight], 1: (4, 16)}}
    model = relaxc.compile(dense(), threads=1, dynamic_shapes=wanted)
    assert len(model.buckets.versions()) == 4
    for batch, n in ((1, 4), (3, 9), (8, 16), (9, 4)):
        check(model, dense(), batch, n, 64)


def test_weights_are_stored_once(padded: relaxc.CompiledModel, tmp_path: Path) -> None:
    data = padded.save(tmp_path / "m.so").read_bytes()
    found = [data.count(row.tobytes()) for row in WEIGHT[:, :16]]
    assert found == [1] * 64


def test_buckets_survive_a_file(padded: relaxc.CompiledModel, tmp_path: Path) -> None:
    loaded = relaxc.load(padded.save(tmp_path / "m.so"))
    assert loaded.buckets == padded.buckets
    check(loaded, dense(), 2, 5, 64)


def test_a_dimension_that_the_file_fixes_may_have_buckets() -> None:
    model = relaxc.compile(affine_relu(), threads=1, dynamic_shapes={"x": {0: [2, 4]}})
    assert model.inputs[0].shape[0] == "x_dim0"
    x = RNG.standard_normal((3, 4)).astype("float32")
    two = relaxc.compile(affine_relu(), threads=1)
    np.testing.assert_allclose(model(x)[:2], two(x[:2]), rtol=1e-5, atol=1e-6)


def test_a_shared_name_is_one_dimension() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    shapes = {name: ("float32", ["n", 3]) for name in "ab"}
    model = relaxc.compile(
        make_model(nodes, shapes, ["y"]), threads=1, dynamic_shapes={"a": {0: [4]}}
    )
    one = np.ones((3, 3), "float32")
    np.testing.assert_array_equal(model(one, one), one * 2)
    assert model.buckets.choose({"n": 3}) == {"n": 4}


@pytest.mark.parametrize("buckets", [[], [0], [-1, 4], [True], [1.5], ["n"]])
def test_lists_that_are_no_buckets(buckets: list) -> None:
    with pytest.raises(InvalidInput, match="positive sizes"):
        relaxc.compile(dense(), dynamic_shapes={"x": {1: buckets}})


def test_too_many_versions() -> None:
    sizes = list(range(1, MAX_VERSIONS + 2))
    with pytest.raises(InvalidInput, match="versions"):
        relaxc.compile(dense(), dynamic_shapes={"x": {1: sizes}})


def test_two_lists_of_one_dimension() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    shapes = {name: ("float32", ["n", 3]) for name in "ab"}
    wanted = {"a": {0: [4]}, "b": {0: [8]}}
    with pytest.raises(InvalidInput, match="two lists"):
        relaxc.compile(make_model(nodes, shapes, ["y"]), dynamic_shapes=wanted)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dynamic_shapes": 3}, "dynamic_shapes must be"),
        ({"dynamic_shapes": ["batch"]}, "dynamic_shapes must be"),
        ({"dynamic_shapes": {"x": 3}}, "not 3"),
        ({"dynamic_shapes": {"x": "batch"}}, "not 'batch'"),
        ({"passes": 3}, "passes must be"),
        ({"dump_dir": 3}, "dump_dir must be"),
    ],
)
def test_options_of_a_wrong_type(options: dict, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        relaxc.compile(dense(), **options)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"x": [2]}, "1 dimensions are given, the input has 3"),
        ({"x": {"n": 2}}, "an axis is an int, not the str 'n'"),
        ({"x": {1: -2}}, "a size or a name"),
        ({"z": {0: [4]}}, "names no input"),
    ],
)
def test_dimensions_that_do_not_fit_the_model(wanted: dict, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        relaxc.compile(dense(), dynamic_shapes=wanted)
