"""Kernels per model after fusion: small configurations have as many a layer as the real ones.

The bars are those a model must not pass; where fewer are reached, the bar is what is reached.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import relaxc
from frontends.onnx import import_onnx
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.relaxc.idle_kernels import idle_kernels
from tir_schedules.machine import Machine, host_target

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")

LAYERS = 2
WIDTHS: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
Example = tuple[Any, ...]


def tokens() -> Any:
    """Return token numbers (2, 16)."""
    return torch.randint(0, 100, (2, 16), generator=torch.Generator().manual_seed(0))


def bert() -> tuple[Any, Example]:
    config = hf.BertConfig(vocab_size=100, max_position_embeddings=32, **WIDTHS)
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 9:] = 0
    return hf.BertModel(config, add_pooling_layer=False), (tokens(), mask)


def gpt2() -> tuple[Any, Example]:
    config = hf.GPT2Config(
        vocab_size=100, n_embd=64, n_layer=LAYERS, n_head=4, n_positions=32, use_cache=False
    )
    return hf.GPT2LMHeadModel(config), (tokens(),)


def llama() -> tuple[Any, Example]:
    config = hf.LlamaConfig(
        vocab_size=100, num_key_value_heads=2, max_position_embeddings=32, use_cache=False, **WIDTHS
    )
    return hf.LlamaForCausalLM(config), (tokens(),)


def vit() -> tuple[Any, Example]:
    config = hf.ViTConfig(image_size=32, patch_size=8, **WIDTHS)
    return hf.ViTForImageClassification(config), (torch.randn(2, 3, 32, 32),)


def resnet50() -> tuple[Any, Example]:
    config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 128, 256], num_labels=10)
    return hf.ResNetForImageClassification(config), (torch.randn(1, 3, 64, 64),)


def mobilenet_v2() -> tuple[Any, Example]:
    config = hf.MobileNetV2Config(image_size=64, num_labels=10)
    return hf.MobileNetV2ForImageClassification(config), (torch.randn(1, 3, 64, 64),)


@functools.cache
def export(build: Callable[[], tuple[Any, Example]], *, dynamo: bool) -> tuple[Any, Any, Example]:
    """Return the ONNX model, the module that returns the first output, and its example inputs.

    Tests of several files share what is exported: nobody changes it.
    """
    torch.manual_seed(0)
    bare, example = build()

    class First(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bare = bare

        def forward(self, *inputs: Any) -> Any:
            return self.bare(*inputs)[0]

    module = First().eval()
    buffer = io.BytesIO()
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(module, example, dynamo=True, verbose=False).save(buffer)
        else:
            torch.onnx.export(module, example, buffer, dynamo=False, opset_version=17)
    return onnx.load_from_string(buffer.getvalue()), module, example


def kernels(model: Any) -> tuple[int, PassContext]:
    """Return how many kernels `model` becomes, none of them idle, and the notes of the passes."""
    target = host_target(threads=2)
    ctx = PassContext(target, Machine.from_target(target))
    mod = default_pipeline().until("fuse").run(import_onnx(model).module, ctx)
    assert idle_kernels(mod) == []
    return ctx.log.metrics["kernel_count"], ctx


@pytest.mark.parametrize(
    ("build", "dynamo", "most"),
    [
        # Projection, attention, projection + residual, norm, two products, norm; beside the layers
        # a check of token numbers, the embeddings, their norm, and the mask.
        pytest.param(bert, False, 7 * LAYERS + 6, id="bert-script"),
        pytest.param(bert, True, 7 * LAYERS + 4, id="bert-dynamo"),
        # As BERT; a check, the embeddings with the first norm, the last norm, and the logits.
        pytest.param(gpt2, True, 7 * LAYERS + 3, id="gpt2"),
        # The rotations of Q and K, and a gate, which so few rows merge with the product beside it.
        pytest.param(llama, True, 10 * LAYERS + 3, id="llama"),
        # The patches' convolution, a transpose, the class token, and the classifier.
        pytest.param(vit, False, 7 * LAYERS + 6, id="vit"),
        pytest.param(resnet50, False, 56, id="resnet50"),
        pytest.param(mobilenet_v2, False, 54, id="mobilenet_v2"),
    ],
)
def test_kernels_per_model(build: Callable[[], Any], dynamo: bool, most: int) -> None:
    model, _, _ = export(build, dynamo=dynamo)
    count, ctx = kernels(model)
    assert count <= most
    left = {name for name, _, _ in ctx.log.declined}
    assert "raise_attention" not in left and "fold_batch_norm" not in left


@pytest.mark.parametrize("build", [bert, llama])
def test_the_numbers_of_a_whole_model(build: Callable[[], Any]) -> None:
    model, module, example = export(build, dynamo=True)
    with torch.no_grad():
        wanted = module(*example).numpy()
    got = relaxc.compile(model, threads=1)(*(x.numpy() for x in example))
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
