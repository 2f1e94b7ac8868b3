"""The importer as a whole: names, inputs, symbolic dimensions, constants, errors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from frontends.errors import CompileError, InvalidInput, InvalidModel, UnsupportedOperator
from frontends.onnx import graph_builder, import_onnx
from tests.frontends.onnx.run_model import (
    assert_like_reference,
    make_model,
    run_imported,
)


def _bound_names(module: tvm.IRModule) -> list[str]:
    return [b.var.name for block in module["main"].body.blocks for b in block.bindings]


def test_tensor_names_are_kept() -> None:
    model = make_model(
        [
            helper.make_node("Relu", ["in.put:0"], ["layer/relu"]),
            helper.make_node("Abs", ["layer/relu"], ["hidden"]),
            helper.make_node("Neg", ["hidden"], ["y"]),
        ],
        {"in.put:0": ("float32", [2, 3])},
        ["y"],
    )
    imported = import_onnx(model)
    assert imported.inputs[0].name == "in.put:0"
    assert imported.outputs[0].name == "y"
    assert imported.module["main"].params[0].name == "in_put_0"
    assert _bound_names(imported.module)[:2] == ["layer_relu", "hidden"]
    relax.analysis.well_formed(imported.module)


def test_dim_params_become_shared_symbols() -> None:
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        {"a": ("float32", ["batch", 3]), "b": ("float32", ["batch", 3])},
        ["y"],
    )
    imported = import_onnx(model)
    assert [spec.shape for spec in imported.inputs] == [("batch", 3), ("batch", 3)]
    assert imported.outputs[0].shape == ("batch", 3)
    first, second = (p.ty.shape.values[0] for p in imported.module["main"].params)
    assert first.same_as(second)
    for batch in (1, 4):
        feeds = {name: np.ones((batch, 3), "float32") for name in "ab"}
        (result,) = run_imported(model, feeds)
        np.testing.assert_array_equal(result, feeds["a"] * 2)


def test_meaningless_dim_params_are_distinct() -> None:
    model = make_model(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": ("float32", ["?", "?"])}, ["y"]
    )
    shape = import_onnx(model).inputs[0].shape
    assert shape == ("x_dim0", "x_dim1")


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("h/2", "h.2"), ("2n", "v2n"), ("n+1", "n-1")])
def test_dim_params_of_one_identifier_are_distinct(names: tuple[str, str]) -> None:
    model = make_model(
        [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["b"], ["z"])],
        {"a": ("float32", [names[0], names[0]]), "b": ("float32", [names[1], 2])},
        ["y", "z"],
    )
    first, second = import_onnx(model).inputs
    assert first.shape[0] == first.shape[1] != second.shape[0]
    feeds = {"a": np.ones((3, 3), "float32"), "b": np.ones((5, 2), "float32")}
    _, result = run_imported(model, feeds)
    np.testing.assert_array_equal(result, -feeds["b"])


def test_unknown_sizes_of_inputs_of_one_identifier_are_distinct() -> None:
    model = make_model(
        [helper.make_node("Relu", ["i.1"], ["y"]), helper.make_node("Neg", ["i_1"], ["z"])],
        {"i.1": ("float32", ["?"]), "i_1": ("float32", ["?"])},
        ["y", "z"],
    )
    first, second = import_onnx(model).inputs
    assert first.shape != second.shape


@pytest.mark.parametrize("kind", ["Add", "Max"])
def test_shapes_that_do_not_fit_are_told_plainly(kind: str) -> None:
    b = {"b": np.ones((3, 1, 3, 3), "float32")}
    model = make_model(
        [helper.make_node(kind, ["x", "b"], ["y"])], {"x": ("float32", ["n", 1, 4, 4])}, ["y"], b
    )
    with pytest.raises(InvalidModel, match=r"\b4\b.* 3.* not (broadcastable|equal)") as caught:
        import_onnx(model)
    assert not any(noise in str(caught.value) for noise in ("ir.Op", "T.int64", "Metadata"))


def test_dynamic_shapes_fix_and_rename() -> None:
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        {"a": ("float32", ["n", 3]), "b": ("float32", ["n", 3])},
        ["y"],
    )
    fixed = import_onnx(model, dynamic_shapes={"a": {0: 5}})
    assert [spec.shape for spec in fixed.inputs] == [(5, 3), (5, 3)]
    renamed = import_onnx(model, dynamic_shapes={"a": {0: "batch"}})
    assert [spec.shape for spec in renamed.inputs] == [("batch", 3), ("batch", 3)]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"nope": {0: 2}}, "names no input"),
        ({"x": {7: 2}}, "out of range"),
        ({"x": {0: 1.5}}, "a size or a name"),
        ({"x": {0: 2**62}}, "no memory holds"),
        ({"x": {"0": 3}}, "an axis is an int, not the str '0'"),
        ({"x": {0: 3, 1: 9}}, r"1 of 'x' is given as 9 \(2 in the file\); with that, .*MatMul"),
    ],
)
def test_wrong_dynamic_shapes(override: dict, message: str) -> None:
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": ("float32", ["n", 2])},
        ["y"],
        {"w": np.ones((2, 3), "float32")},
    )
    with pytest.raises(InvalidInput, match=message):
        import_onnx(model, dynamic_shapes=override)


def test_sizes_of_symbols_that_contradict_each_other_are_the_users_fault() -> None:
    model = make_model(
        [helper.make_node("Add", ["x", "b"], ["y"])],
        {"x": ("float32", ["n", 4]), "b": ("float32", ["k", 4])},
        ["y"],
    )
    with pytest.raises(InvalidInput, match=r"0 of 'x' is given as 2 \('n' in the file\)"):
        import_onnx(model, dynamic_shapes={"x": {0: 2}, "b": {0: 3}})
    model.graph.node[0].input[1] = "x"
    model.graph.node.append(helper.make_node("Reshape", ["b", "k"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([-2]), "k"))
    with pytest.raises(InvalidModel):  # with any sizes
        import_onnx(model, dynamic_shapes={"x": {0: 2}})


def test_inputs_with_defaults_are_constants() -> None:
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        {"x": ("float32", [2, 3]), "w": ("float32", [2, 3])},
        ["y"],
        {"w": weight},
    )
    assert [spec.name for spec in import_onnx(model).inputs] == ["x"]
    assert_like_reference(model, {"x": np.ones((2, 3), "float32")})


def test_weights_as_initializer_constant_node_and_default_agree() -> None:
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    x = {"x": np.random.default_rng(1).standard_normal((2, 3)).astype("float32")}
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight))
    spec = {"x": ("float32", [2, 3])}
    models = [
        make_model([product], spec, ["y"], {"w": weight}),
        make_model([constant, product], spec, ["y"]),
        make_model([product], {**spec, "w": ("float32", [3, 4])}, ["y"], {"w": weight}),
    ]
    results = [run_imported(model, x)[0] for model in models]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_a_constant_is_embedded_once() -> None:
    weight = np.ones((3, 3), "float32")
    model = make_model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("MatMul", ["a", "w"], ["y"]),
        ],
        {"x": ("float32", [2, 3])},
        ["y"],
        {"w": weight},
    )
    module = import_onnx(model).module
    calls = [b.value for block in module["main"].body.blocks for b in block.bindings]
    weights = [call.args[1] for call in calls if isinstance(call, relax.Call)]
    assert len(weights) == 2
    assert weights[0].same_as(weights[1])


def test_constant_nodes_are_folded() -> None:
    two = np.asarray([2.0], "float32")
    model = make_model(
        [
            helper.make_node("Add", ["c", "c"], ["four"]),
            helper.make_node("Sqrt", ["four"], ["root"]),
            helper.make_node("Mul", ["x", "root"], ["y"]),
        ],
        {"x": ("float32", [3])},
        ["y"],
        {"c": two},
    )
    assert "sqrt" not in import_onnx(model).module.script()
    (result,) = run_imported(model, {"x": np.ones(3, "float32")})
    np.testing.assert_array_equal(result, np.full(3, 2.0, "float32"))


@pytest.mark.parametrize("domain", ["custom", ""])
def test_all_unsupported_operators_are_listed_with_counts(domain: str) -> None:
    model = make_model(
        [
            helper.make_node("Foo", ["x"], ["a"], name="foo1", domain=domain),
            helper.make_node("Foo", ["a"], ["b"], name="foo2", domain=domain),
            helper.make_node("Bar", ["b"], ["y"], name="bar", domain=domain),
        ],
        {"x": ("float32", [2])},
        ["y"],
        domains={"custom": 1},
    )
    with pytest.raises(UnsupportedOperator) as caught:
        import_onnx(model)
    text = str(caught.value)
    prefix, opset = (f"{domain}.", 1) if domain else ("", 17)
    assert f"{prefix}Foo (opset {opset}) in 2 node(s): foo1, foo2" in text
    assert f"{prefix}Bar (opset {opset}) in 1 node(s): bar" in text


def test_a_node_that_contradicts_itself_is_described() -> None:
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        {"x": ("float32", [2, 3])},
        ["y"],
        {"w": np.ones((4, 5), "float32")},
    )
    with pytest.raises(InvalidModel) as caught:
        import_onnx(model)
    assert caught.value.node == "product"
    assert "MatMul (opset 17) of [x: float32[2, 3], w: constant float32[4, 5]]" in str(caught.value)


def test_a_slip_of_a_converter_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of Python that our code raises are ours; those that TVM raises speak of the model."""
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ("float32", [2])}, ["y"])
    model.graph.name = "slip.onnx"

    def convert_by(converter: object) -> None:
        monkeypatch.setattr(graph_builder, "find_converter", lambda *_: converter)

    convert_by(lambda op: op.x("0"))  # no place of an input
    with pytest.raises(CompileError, match="TypeError: .*Relu") as caught:
        import_onnx(model)
    assert (caught.value.node, caught.value.file) == ("y", "slip.onnx")
    assert isinstance(caught.value.__cause__, TypeError)
    convert_by(lambda op: relax.op.permute_dims(op.x(), [0, 1]))
    with pytest.raises(InvalidModel, match="cannot be imported"):
        import_onnx(model)


@pytest.mark.parametrize(
    ("op", "name"),
    [("NhwcMaxPool", "kernel_shape"), ("GroupNorm", "groups"), ("QLinearConcat", "axis")],
)
def test_an_attribute_that_no_schema_asks_for(op: str, name: str) -> None:
    names = [f"x{place}" for place in range(5)]
    model = make_model(
        [helper.make_node(op, names, ["y"], domain="com.microsoft")],
        {name: ("float32", [2, 4, 3]) for name in names}, ["y"], domains={"com.microsoft": 1},
    )  # fmt: skip
    with pytest.raises(InvalidModel, match=f"attribute {name} "):
        import_onnx(model)


def test_output_dtype_must_agree() -> None:
    model = make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64)],
        {"x": ("float32", [2])},
        ["y"],
    )
    with pytest.raises(InvalidModel):
        import_onnx(model)


def test_local_function_with_attribute_reference() -> None:
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = body.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    function = helper.make_function(
        "local", "Leak", ["a"], ["b"], [body], [helper.make_opsetid("", 17)], ["slope"]
    )
    model = make_model(
        [helper.make_node("Leak", ["x"], ["y"], domain="local", slope=0.25)],
        {"x": ("float32", [4])},
        ["y"],
        domains={"local": 1},
    )
    model.functions.append(function)
    (result,) = run_imported(model, {"x": np.asarray([-4, -1, 0, 2], "float32")})
    np.testing.assert_allclose(result, [-1, -0.25, 0, 2])


def test_a_local_function_of_another_opset_than_the_model() -> None:
    """Softmax of opset 11 flattens what lies behind its axis, that of opset 13 does not."""
    body = [helper.make_node("Softmax", ["a"], ["b"], axis=1)]
    opsets = [helper.make_opsetid("", 11)]
    model = make_model(
        [helper.make_node("Old", ["x"], ["y"], domain="local")],
        {"x": ("float32", [1, 2, 2])},
        ["y"],
        domains={"local": 1},
    )
    model.functions.append(helper.make_function("local", "Old", ["a"], ["b"], body, opsets))
    (result,) = run_imported(model, {"x": np.zeros((1, 2, 2), "float32")})
    np.testing.assert_allclose(result, np.full((1, 2, 2), 0.25))
    model.functions[0].node[0].op_type = "Softmacs"
    with pytest.raises((InvalidModel, UnsupportedOperator), match="Softmacs"):
        import_onnx(model)


def test_schema_function_is_expanded_where_no_converter_exists() -> None:
    from frontends.onnx.registry import find_converter

    assert find_converter("", "ReduceLogSumExp", 17) is not None
    assert find_converter("", "NegativeLogLikelihoodLoss", 17) is None
    model = make_model(
        [helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], reduction="mean")],
        {"x": ("float32", [2, 3]), "t": ("int64", [2])},
        ["y"],
    )
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 3)).astype("float32"),
        "t": np.asarray([2, 0]),
    }
    assert_like_reference(model, feeds)


def test_import_time_is_linear_in_nodes() -> None:
    """A thousand nodes bind a thousand variables, and reading them does not revisit old ones."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(1000)]
    model = make_model(nodes, {"v0": ("float32", [2])}, ["v1000"])
    assert len(_bound_names(import_onnx(model).module)) >= 1000


def test_outputs_that_no_node_computes() -> None:
    """An output may be an input or an initializer."""
    model = make_model(
        [helper.make_node("Relu", ["x"], ["y"])],
        {"x": ("float32", [2])},
        ["y", "x", "c"],
        {"c": np.asarray([5.0], "float32")},
    )
    feeds = {"x": np.asarray([-1, 2], "float32")}
    y, x, c = run_imported(model, feeds)
    np.testing.assert_array_equal(y, [0, 2])
    np.testing.assert_array_equal(x, feeds["x"])
    np.testing.assert_array_equal(c, [5])


def test_equal_names_after_sanitizing_stay_distinct() -> None:
    model = make_model(
        [helper.make_node("Sub", ["a.b", "a/b"], ["y"])],
        {"a.b": ("float32", [2]), "a/b": ("float32", [2])},
        ["y"],
    )
    assert_like_reference(
        model, {"a.b": np.asarray([3, 4], "float32"), "a/b": np.asarray([1, 1], "float32")}
    )
