"""Every kernel of ResNet-18 and of a BERT layer: scheduled for sm_80, and no spilled register."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm.tirx import PrimFunc

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.cuda.models import bert_layer, resnet18, small_bert_layer
from tests.cuda.ptxas import SM_80, KernelUsage, cuda_source, kernel_usage
from tir_schedules import Machine


def scheduled_kernels(
    module: tvm.IRModule, ctx: PassContext | None = None
) -> tuple[dict[str, PrimFunc], list[dict[str, str]]]:
    """Return the distinct scheduled kernels of a model, and what the report says of each."""
    ctx = ctx or PassContext(SM_80, Machine.from_target(SM_80))
    module = default_pipeline().until("schedule").run(module, ctx)
    kernels = {
        var.name_hint: func for var, func in module.functions.items() if isinstance(func, PrimFunc)
    }
    return kernels, ctx.log.metrics["kernels"]


@pytest.mark.parametrize(
    ("model", "least"), [(resnet18, 12), (bert_layer, 6)], ids=["resnet18", "bert_layer"]
)
def test_no_kernel_spills(model: Callable[[], tvm.IRModule], least: int, nvcc: str) -> None:
    ctx = PassContext(SM_80, Machine.from_target(SM_80))
    kernels, report = scheduled_kernels(model(), ctx)
    assert len(kernels) >= least
    # Convolutions are in NHWC; the first one reads the image where it lies.
    convolutions = {k["rule"] for k in report if "conv2d" in k["name"]}
    assert convolutions <= {"cuda_core_matmul"}
    assert ctx.log.metrics.get("layout_transforms", 0) == 0
    assert {k["name"]: k["rule"] for k in report if k["rule"] == "fallback"} == {}
    usage = kernel_usage(nvcc, cuda_source(kernels))
    owners = {name for name in kernels if any(k.startswith(f"{name}_kernel") for k in usage)}
    assert owners == set(kernels), "a function without a kernel was not scheduled"
    assert {name: u for name, u in usage.items() if u.spills or u.stack} == {}
    assert all(u.shared <= 48 << 10 and 0 < u.registers <= 255 for u in usage.values())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_transformer_layer_has_no_more_kernels_than_on_a_processor(dtype: str) -> None:
    """Merged Q, K, V; attention; output; norm; two products with what follows; norm."""
    _, report = scheduled_kernels(small_bert_layer(dtype))
    assert sum(int(kernel["calls"]) for kernel in report) == 7
    assert sum(kernel["rule"] == "attention" for kernel in report) == 1


def test_a_spill_is_seen(nvcc: str) -> None:
    usage = kernel_usage(nvcc, _SPILLING)
    assert isinstance(usage["spilling"], KernelUsage)
    assert usage["spilling"].spills > 0


# Sixteen registers a thread cannot hold sixty-four sums that are all alive.
_SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
  float sum[64];
  for (int i = 0; i < 64; ++i) sum[i] = x[i];
#pragma unroll
  for (int k = 0; k < 100; ++k)
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i] = sum[(i + 7) % 64] * x[k * 64 + threadIdx.x] + sum[i];
  for (int i = 0; i < 64; ++i) y[threadIdx.x * 64 + i] = sum[i];
}
"""
