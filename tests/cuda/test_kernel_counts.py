"""The zoo's architectures, few layers of each: no more kernels on CUDA than on a processor."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.tirx import PrimFunc

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from relaxc.compiler import import_source
from tests.cuda.ptxas import SM_80
from tests.relax_passes.lowered_modules import llvm_context
from tests.relax_passes.memory import small_zoo
from tir_schedules import Machine

pytest.importorskip("transformers")

WIDTH = {"hidden_size": 64, "num_attention_heads": 4}
MODELS = {
    **{name: small_zoo.MODELS[name] for name in ("mobilenet_v2", "resnet", "vit", "bert", "gpt2")},
    "llama": small_zoo.text(
        lambda hf: hf.LlamaModel(
            hf.LlamaConfig(
                **WIDTH, vocab_size=512, intermediate_size=128, num_hidden_layers=2, use_cache=False
            )
        )
    ),
    "swin": small_zoo.image(
        lambda hf: hf.SwinModel(
            hf.SwinConfig(
                image_size=64, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4
            )
        ),
        64,
    ),
    "convnext": small_zoo.image(
        lambda hf: hf.ConvNextModel(
            hf.ConvNextConfig(hidden_sizes=[16, 32], depths=[2, 2], num_stages=2)
        ),
        64,
    ),
}


def kernel_calls(module: tvm.IRModule, ctx: PassContext) -> int:
    """Return how many kernels a run of `main` calls, once operators are fused."""
    fused = default_pipeline().until("fuse").run(module, ctx)
    calls: list[Any] = []

    def visit(call: tvm.ir.Call) -> None:
        callee = call.args[0] if len(call.args) else None
        if isinstance(callee, tvm.ir.GlobalVar) and isinstance(fused[callee], PrimFunc):
            calls.append(callee)

    for func in fused.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    return len(calls)


@pytest.mark.parametrize("name", MODELS)
def test_no_more_kernels_than_on_a_processor(name: str) -> None:
    module, example = MODELS[name]()
    imported = import_source(module.eval(), example).module
    on_cuda = kernel_calls(imported, PassContext(SM_80, Machine.from_target(SM_80)))
    assert 0 < on_cuda <= kernel_calls(imported, llvm_context())
