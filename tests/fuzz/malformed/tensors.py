"""Weights and inputs whose sizes, types or data contradict each other."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tests.fuzz.malformed.case import FLOAT, Malformed, case, make_node, make_weight, model, value


@case
def initializer_with_a_negative_dimension() -> Malformed:
    weight = make_weight("w", [1.0])
    weight.dims[0] = -1
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@case
def initializer_that_claims_a_terabyte() -> Malformed:
    weight = make_weight("w", [1.0])
    weight.dims[0] = 10**12
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@case
def initializer_whose_size_overflows() -> Malformed:
    weight = make_weight("w", [1.0])
    weight.dims.extend([2**62, 2**62])
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@case
def initializer_with_too_little_typed_data() -> Malformed:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2, 3], float_data=[1, 2])
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@case
def initializer_with_too_much_raw_data() -> Malformed:
    weight = make_weight("w", [1.0, 2.0])
    weight.dims[0] = 1
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "'w'")


@case
def initializer_of_an_unknown_type() -> Malformed:
    weight = make_weight("w", [1.0])
    weight.data_type = 99
    return Malformed(model([make_node("Add", ["x", "w"], ["y"])], [weight]), "99")


@case
def constant_node_that_claims_a_terabyte() -> Malformed:
    tensor = make_weight("inner", [1.0])
    tensor.dims[0] = 10**12
    nodes = [make_node("Constant", [], ["w"], value=tensor), make_node("Add", ["x", "w"], ["y"])]
    return Malformed(model(nodes), "'inner'")


@case
def input_with_a_negative_dimension() -> Malformed:
    return Malformed(model(inputs=[value("x", [2, -3])]), "'x'")


@case
def input_whose_size_overflows() -> Malformed:
    return Malformed(model(inputs=[value("x", [2**62, 2**62])]), "'x'")


@case
def input_of_an_unknown_type() -> Malformed:
    return Malformed(model(inputs=[value("x", [2], 99)]), "99")


@case
def output_of_an_unknown_type() -> Malformed:
    made = model()
    made.graph.output[0].type.tensor_type.elem_type = 99
    return Malformed(made, "99")


@case
def input_without_a_type() -> Malformed:
    return Malformed(model(inputs=[onnx.ValueInfoProto(name="x")]), "x")


@case
def sparse_initializer_with_an_index_out_of_range() -> Malformed:
    return _sparse([1, 99], [4])


@case
def sparse_initializer_with_a_negative_index() -> Malformed:
    return _sparse([1, -1], [4])


@case
def sparse_initializer_with_too_few_indices() -> Malformed:
    return _sparse([1], [4])


@case
def sparse_initializer_with_a_negative_dimension() -> Malformed:
    return _sparse([1, 2], [-4])


def _sparse(indices: list[int], dims: list[int]) -> Malformed:
    made = model([make_node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.append(
        onnx.SparseTensorProto(
            values=make_weight("w", [1.0, 2.0]),
            indices=make_weight("", indices, "int64"),
            dims=dims,
        )
    )
    return Malformed(made, "'w'")
