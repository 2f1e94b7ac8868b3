"""The models of `benchmarks/zoo.py` at small configurations, weights random, as modules planned.

MobileNetV2 is itself: its bytes at 224 pixels are what is asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from relaxc.compiler import import_source
from tests.relax_passes.lowered_modules import llvm_context


def text(
    build: Callable[[Any], Any], shape: tuple[int, int] = (1, 32)
) -> Callable[[], tuple[Any, tuple]]:
    """Return what makes a model of tokens and an example of them."""

    def make() -> tuple[Any, tuple]:
        import torch
        import transformers as hf

        return build(hf), (torch.ones(shape, dtype=torch.int64),)

    return make


def image(build: Callable[[Any], Any], size: int) -> Callable[[], tuple[Any, tuple]]:
    """Return what makes a model of square images of `size` pixels and an example."""

    def make() -> tuple[Any, tuple]:
        import torch
        import transformers as hf

        return build(hf), (torch.zeros((1, 3, size, size)),)

    return make


_WIDTH = {"hidden_size": 64, "num_attention_heads": 4}
MODELS: dict[str, Callable[[], tuple[Any, tuple]]] = {
    "mobilenet_v2": image(lambda hf: hf.MobileNetV2Model(hf.MobileNetV2Config()), 224),
    "resnet": image(
        lambda hf: hf.ResNetModel(
            hf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[1, 2, 2, 1])
        ),
        64,
    ),
    "vit": image(
        lambda hf: hf.ViTModel(
            hf.ViTConfig(
                **_WIDTH, num_hidden_layers=2, intermediate_size=128, image_size=64, patch_size=16
            )
        ),
        64,
    ),
    "bert": text(
        lambda hf: hf.BertModel(
            hf.BertConfig(**_WIDTH, num_hidden_layers=4, intermediate_size=256, vocab_size=512)
        )
    ),
    # BERT-base but for its depth: its arena is that of one layer, and each layer adds to the rest.
    "bert_base_batch_32": text(
        lambda hf: hf.BertModel(hf.BertConfig(num_hidden_layers=2, vocab_size=512)), (32, 128)
    ),
    "gpt2": text(
        lambda hf: hf.GPT2Model(
            hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=512, use_cache=False)
        )
    ),
}


@functools.cache
def plan(name: str) -> PassContext:
    """Carry a model through the pipeline, nothing built; return the context with its figures."""
    import torch

    module, example = MODELS[name]()

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x):
            return self.inner(x, return_dict=False)[0]

    imported = import_source(First().eval(), example)
    ctx = llvm_context()
    default_pipeline().with_options("plan_memory", compare=True).run(imported.module, ctx)
    return ctx
