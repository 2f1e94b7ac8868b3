"""The importer as a whole: errors, names, dynamic shapes, and two Hugging Face models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from frontends import InvalidModel, UnsupportedOperator  # noqa: E402
from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_matches_eager,
    assert_same,
    operators,
    run,
)


def test_an_import_prints_no_warning_about_torchs_own_code(recwarn):
    import_torch(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))
    assert not [str(w.message) for w in recwarn if "LeafSpec" in str(w.message)]


def test_a_sparse_input_is_named():
    with pytest.raises(UnsupportedOperator, match=r"layout sparse_coo.*'tensors_0'"):
        import_torch(Lambda(lambda x: torch.sparse.sum(x)), (torch.eye(2).to_sparse(),))


def test_what_cannot_be_exported_names_the_line_of_the_user():
    def branches(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(InvalidModel, match=r"test_import_torch.py:\d+: if x.sum\(\) > 0"):
        import_torch(Lambda(branches), (torch.ones(2),))


def test_training_mode_is_refused():
    with pytest.raises(InvalidModel, match=r"training mode.*\.eval\(\)"):
        import_torch(nn.Sequential(nn.Linear(2, 2)), (torch.ones(1, 2),))


def test_a_submodule_in_training_mode_is_named():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
    module[1].train()
    with pytest.raises(InvalidModel, match="first '1'"):
        import_torch(module, (torch.ones(1, 2),))


def test_missing_example_inputs_are_refused():
    with pytest.raises(InvalidModel, match="example_inputs"):
        import_torch(nn.Linear(2, 2).eval())


def test_example_inputs_of_the_wrong_kind_are_refused():
    with pytest.raises(InvalidModel, match="a tuple of the arguments.* got Tensor"):
        import_torch(nn.Linear(2, 2).eval(), torch.ones(1, 2))


def test_arguments_by_name():
    class Scale(nn.Module):
        def forward(self, x: torch.Tensor, *, by: torch.Tensor) -> torch.Tensor:
            return x * by

    model = import_torch(Scale().eval(), {"x": torch.ones(3), "by": torch.ones(1)})
    assert [spec.name for spec in model.inputs] == ["x", "by"]
    x, by = torch.randn(3), torch.tensor([2.0])
    assert_same(run(model, x, by), x * by)


def test_parameters_without_elements_are_refused():
    layer = nn.Linear(2, 2, device="meta").eval()
    x = torch.ones(1, 2, device="meta")
    with pytest.raises(InvalidModel, match="meta device"):
        import_torch(layer, (x,))
    assert len(import_torch(layer, (x,), keep_params=True).inputs) == 3


def test_other_objects_are_refused():
    with pytest.raises(InvalidModel, match="got int"):
        import_torch(3, ())


def test_data_dependent_control_flow_is_refused():
    module = Lambda(lambda x: x + 1 if x.sum() > 0 else x)
    with pytest.raises(InvalidModel, match="cannot export Lambda"):
        import_torch(module, (torch.ones(2),))


def test_a_written_buffer_is_an_input_and_an_output():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    model = import_torch(Counter().eval(), (torch.ones(1),))
    assert [spec.name for spec in model.inputs] == ["x", "count"]
    assert [spec.name for spec in model.outputs] == ["output", "new_count"]
    result, count = run(model, torch.ones(1), torch.tensor([4.0]))
    assert result == [6.0] and count == [5.0]


def test_a_written_input_is_returned():
    """T8: an in-place operator on an input is functional; the caller gets the new value."""
    model = import_torch(Lambda(lambda x: x.add_(1).sum()), (torch.ones(2),))
    assert [spec.name for spec in model.outputs] == ["output", "new_tensors_0"]
    total, new = run(model, torch.ones(2))
    assert total == 4 and list(new) == [2, 2]


def test_parameters_as_inputs():
    layer = nn.Sequential(nn.Linear(3, 2)).eval()
    x = torch.ones(1, 3)
    model = import_torch(layer, (x,), keep_params=True)
    assert [spec.name for spec in model.inputs] == ["input", "0.weight", "0.bias"]
    weight, bias = torch.randn(2, 3), torch.randn(2)
    assert_same(run(model, x, weight, bias), nn.functional.linear(x, weight, bias))


def test_all_unsupported_operators_are_listed_with_their_lines():
    module = Lambda(lambda x: torch.special.i1(x) + torch.special.i0(x).sum())
    with pytest.raises(UnsupportedOperator) as caught:
        import_torch(module, (torch.eye(3),))
    message = str(caught.value)
    assert message.startswith("2 ATen operator(s)")
    assert "special_i1" in message and "aten.i0" in message and ".py:" in message


def test_unsupported_operators_that_no_output_needs_do_not_matter():
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.special.i1(x)
        return x + 1

    assert_matches_eager(function, torch.eye(3))


def test_weights_are_constants_and_inputs_are_named():
    model = assert_matches_eager(nn.Linear(3, 2).eval(), torch.ones(1, 3))
    assert [v.name for v in model.module["main"].params] == ["input"]
    assert [(s.name, s.shape, s.dtype) for s in model.inputs] == [("input", (1, 3), "float32")]
    assert [(s.name, s.shape) for s in model.outputs] == [("output", (1, 2))]
    assert model.source == "Linear"


def test_outputs_are_named_by_their_keys():
    model = assert_matches_eager_dict(lambda x: {"sum": x.sum(), "twice": x * 2}, torch.ones(3))
    assert [s.name for s in model.outputs] == ["sum", "twice"]


def assert_matches_eager_dict(function, *inputs):
    model = import_torch(Lambda(function), inputs)
    assert_same(run(model, *inputs), function(*inputs).values())
    return model


def test_weights_are_copied():
    """Training the module further must not change what was imported."""
    layer = nn.Linear(2, 2).eval()
    x = torch.ones(1, 2)
    expected = layer(x).detach().clone()
    model = import_torch(layer, (x,))
    with torch.no_grad():
        layer.weight.zero_()
    assert_same(run(model, x), expected)


def test_an_exported_program_is_taken_as_it_is():
    layer, x = nn.Linear(3, 2).eval(), torch.ones(1, 3)
    model = import_torch(torch.export.export(layer, (x,)))
    assert_same(run(model, x), layer(x))


def test_dynamic_shapes_keep_their_names_and_serve_other_sizes():
    """T7: dynamic batch and sequence, derived sizes, views of views."""

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        both = torch.cat([x, x], 1)  # 2 * length
        rows = both.reshape(x.shape[0] * both.shape[1], 4)
        return [rows.view(x.shape[0], -1, 4).transpose(1, 2) + 1, x[:, 1:].sum(1), both[:, 0]]

    module = Lambda(function)
    shapes = {"tensors": ({0: "batch", 1: "length"},)}
    model = import_torch(module, (torch.ones(2, 3, 4),), dynamic_shapes=shapes)
    assert model.inputs[0].shape == ("batch", "length", 4)
    for batch, length in [(1, 5), (3, 2)]:
        x = torch.randn(batch, length, 4)
        assert_same(run(model, x), module(x))


def test_resnet18_equals_eager():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[8, 16, 24, 32], embedding_size=8
    )
    module = First(transformers.ResNetForImageClassification(config)).eval()
    model = assert_matches_eager(module, torch.randn(1, 3, 32, 32), tolerance=1e-4)
    counts = operators(model)
    assert counts["nn.conv2d"] == counts["nn.batch_norm"] == 20


def test_bert_layer_equals_eager():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    module = First(transformers.BertModel(config, add_pooling_layer=False)).eval()
    ids = torch.randint(0, 50, (1, 7))
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0]])
    model = assert_matches_eager(module, ids, mask, tolerance=1e-4)
    counts = operators(model)
    assert counts["nn.layer_norm"] == 3
    assert counts["nn.gelu"] == counts["nn.attention_bias"] == 1


class First(nn.Module):
    """A Hugging Face model that returns its first output as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(*tensors)[0]


def test_an_error_of_the_sizes_says_what_torch_suggests():
    layer = nn.Conv1d(3, 4, 3).eval()
    with pytest.raises(InvalidModel, match=r"Suggested fixes: length = Dim\('length', min=3\)"):
        import_torch(layer, (torch.ones(2, 3, 9),), dynamic_shapes=({2: "length"},))
