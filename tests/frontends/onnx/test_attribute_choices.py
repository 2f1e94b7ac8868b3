"""Words that no operator knows are refused, whatever a converter would take them for."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from frontends.onnx.attribute_choices import CHOICES, check_choices
from tests.frontends.onnx.run_model import assert_like_reference, make_model

PAIRS = [(operator, name) for operator, names in CHOICES.items() for name in names]


@pytest.mark.parametrize(("operator", "name"), PAIRS)
def test_only_the_words_of_the_specification_are_taken(operator: str, name: str) -> None:
    for word in CHOICES[operator][name].split():
        check_choices(helper.make_node(operator, ["x"], ["y"], **{name: word}))
    node = helper.make_node(operator, ["x"], ["y"], **{name: "nonsense"})
    with pytest.raises(InvalidModel, match=f"attribute {name} is 'nonsense', not one of "):
        check_choices(node)


def test_the_table_holds_each_default_of_the_schemas() -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            words = CHOICES.get(schema.name, {}).get(name)
            default = attribute.default_value.s.decode().replace("foward", "forward")  # GRU-1
            if words is not None and default:
                assert default in words.split(), (schema.name, name)


def test_every_attribute_whose_description_lists_words_is_in_the_table() -> None:
    """Schemas say "One of", "modes", "must be either" or quote words where they list them."""
    lists = re.compile(r"\b(one of|must be either|modes?|can be either|type of reduction)\b", re.I)
    free = {"CastMap": ["map_form", "cast_to"], "Cast": ["to"],  # strings and maps are refused
            "ImageDecoder": ["pixel_format"]}  # fmt: skip
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            if attribute.type != onnx.defs.OpSchema.AttrType.STRING or name.startswith("default_"):
                continue
            if lists.search(attribute.description) and name not in free.get(schema.name, []):
                assert name in CHOICES.get(schema.name, {}), (schema.name, name)


def test_the_importer_names_the_node_and_the_words() -> None:
    node = helper.make_node("DepthToSpace", ["x"], ["y"], "shuffle", blocksize=2, mode="RCD")
    model = make_model([node], {"x": ("float32", (1, 4, 2, 2))}, ["y"])
    with pytest.raises(InvalidModel, match="mode is 'RCD', not one of DCR, CRD") as caught:
        import_onnx(model)
    assert caught.value.node == "shuffle"


def test_a_node_of_constants_is_checked_before_it_is_folded() -> None:
    node = helper.make_node("BitShift", ["x", "x"], ["y"], direction="UP")
    ones = {"x": np.ones(2, "uint8")}
    model = make_model([node], {}, ["y"], ones, output_types={"y": TensorProto.UINT8})
    with pytest.raises(InvalidModel, match="not one of LEFT, RIGHT"):
        import_onnx(model)


def test_an_empty_auto_pad_means_the_pads() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], auto_pad="", pads=[1, 0])
    x = np.arange(5, dtype="float32").reshape(1, 1, 5)
    assert_like_reference(make_model([node], {"x": ("float32", x.shape)}, ["y"]), {"x": x})
