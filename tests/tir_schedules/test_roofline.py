"""How long a GPU kernel takes at least, by hand-computed rates."""

from __future__ import annotations

import pytest
from tvm.relax import op
from tvm.target import Target

import relaxc
from relax_passes.analysis.cost import kernel_cost
from tests.cuda.fused_function import fused_function
from tests.cuda.models import small_bert_layer
from tests.cuda.products import matmul
from tir_schedules import Machine, schedule_func
from tir_schedules.gpu import Gpu
from tir_schedules.roofline import Roofline, roofline


def _of(func: object, arch: str = "sm_80") -> Roofline:
    target = Target({"kind": "cuda", "arch": arch, "max_shared_memory_per_block": 49152})
    gpu = Machine.from_target(target).gpu
    assert gpu is not None
    return roofline(schedule_func(func, target).func, *kernel_cost(func), gpu)


@pytest.mark.parametrize(
    ("arch", "tensor_flops", "core_flops"),
    [
        ("sm_80", 312e12, 19.5e12),
        ("sm_86", 71e12, 35.6e12),
        ("sm_89", 165e12, 82.6e12),
        ("sm_90", 495e12, 61.8e12),  # half of what wgmma reaches
    ],
)
def test_a_large_product_is_bound_by_its_units(
    arch: str, tensor_flops: float, core_flops: float
) -> None:
    half = _of(matmul(4096, 4096, 4096).func, arch)
    assert half.bound == "Tensor Cores"
    assert half.seconds == pytest.approx(2 * 4096**3 / tensor_flops, rel=0.02)
    single = _of(matmul(4096, 4096, 4096, dtype="float32").func, arch)
    assert single.bound == "CUDA cores"
    assert single.seconds == pytest.approx(2 * 4096**3 / core_flops, rel=0.02)


def test_a_map_is_bound_by_the_memory() -> None:
    func = fused_function(lambda x, y: op.add(x, y), [(4096, 4096)] * 2)
    found = _of(func)
    assert found.bound == "memory"
    assert found.seconds == pytest.approx(3 * 4 * 4096**2 / 1.555e12)


def test_float32_split_for_tensor_cores_takes_three_products_at_half_the_rate() -> None:
    gpu = Gpu.from_arch("sm_80")
    model = relaxc.compile(small_bert_layer("float32"), target={"kind": "cuda", "arch": "sm_80"})
    (attention,) = [k for k in model.kernels if k["rule"] == "attention"]
    rate = 2 * gpu.matrix_fmas / 6 * gpu.multiprocessors * gpu.clock_hz
    memory = attention["bytes"] / gpu.memory_bytes_per_second
    assert attention["least_seconds"] == pytest.approx(max(attention["flops"] / rate, memory))
    shown = str(model.report)
    assert "at least, on A100" in shown
    assert "what bounds the kernels" in shown
    assert "bound by" in model.report.to_html()
    rows = model.report.roofline_rows()
    assert len(rows) == len(model.kernels)
    assert {row[-1] for row in rows} <= {"memory", "CUDA cores", "Tensor Cores"}


def test_a_processor_has_no_roofline() -> None:
    model = relaxc.compile(small_bert_layer("float32"))
    assert model.report.roofline_rows() == []
    assert "bounds the kernels" not in str(model.report)
    assert "bounds the kernels" not in model.report.to_html()
