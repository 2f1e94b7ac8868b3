"""Sources for OpenCL, Metal, ROCm and WebGPU from the rules that need no CUDA instruction."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import tvm

import relaxc
from relaxc.errors import IncompatibleArtifact, UnsupportedTarget
from tests.cuda.models import small_bert_layer, small_residual_block
from tests.cuda.opencl_kernels import schedule_for

KINDS = {
    "opencl": ("kernels.cl", r"__kernel void (\w+)\([^;]*\{"),
    "metal": ("kernels.metal", r"kernel void (\w+)\("),
    "rocm": ("kernels.ll", r"amdgpu_kernel void @(\w+)\("),
    "webgpu": ("kernels.wgsl", r"\nfn (\w+_kernel\w*)\("),
}
MODELS = {"bert_layer": small_bert_layer, "residual_block": small_residual_block}
# Words of CUDA C and PTX.
_CUDA = re.compile(r"__global__|__shared__|__shfl|asm volatile|cp\.async|mma\.sync|ldmatrix|nv_")
_WORKGROUP_THREADS = 256
_SHARED = {"opencl": 16384, "metal": 32768, "rocm": 65536, "webgpu": 16384}
_LOCAL_ARRAY = re.compile(
    r"__local (\w+) \w+\[(\d+)\]|threadgroup (\w+) \w+\[(\d+)\]"
    r"|var<workgroup> \w+ : array<(\w+), (\d+)>|addrspace\(3\) global \[(\d+) x (\w+)\]"
)
_BYTES = {"float": 4, "f32": 4, "half": 2, "f16": 2, "int": 4, "i32": 4, "long": 8, "uchar": 1}


@pytest.fixture(scope="module", params=[(k, m) for k in KINDS for m in MODELS], ids="-".join)
def compiled(request: pytest.FixtureRequest) -> tuple[str, relaxc.CompiledModel]:
    kind, model = request.param
    return kind, relaxc.compile(MODELS[model]("float32"), target=kind)


def _kernel_texts(kind: str, source: str) -> dict[str, str]:
    """Return the text from each kernel's definition to the next one's."""
    parts = re.split(KINDS[kind][1], source)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _shared_bytes(text: str) -> int:
    total = 0
    for groups in _LOCAL_ARRAY.findall(text):
        given = [group for group in groups if group]
        count, dtype = sorted(given, key=lambda g: not g.isdigit())
        total += int(count) * _BYTES[dtype]
    return total


def test_every_kernel_is_scheduled_and_has_a_source(
    compiled: tuple[str, relaxc.CompiledModel],
) -> None:
    kind, model = compiled
    file, _ = KINDS[kind]
    source = model.device_sources()[file]
    kernels = _kernel_texts(kind, source)
    for kernel in model.kernels:
        assert kernel["rule"] != "fallback"
        assert any(name.startswith(f"{kernel['name']}_kernel") for name in kernels), kernel
    assert not _CUDA.search(source)
    assert {kernel["rule"] for kernel in model.kernels} <= {
        *("elementwise", "contraction", "row_kernel", "reduction"),
    }


def test_work_groups_are_within_what_any_device_grants(
    compiled: tuple[str, relaxc.CompiledModel],
) -> None:
    kind, model = compiled
    texts = _kernel_texts(kind, model.device_sources()[KINDS[kind][0]])
    shared = {name: _shared_bytes(text) for name, text in texts.items()}
    assert max(shared.values()) <= _SHARED[kind]
    if kind in ("opencl", "metal", "webgpu"):  # in LLVM's text they stand before the kernels
        assert any(shared.values()), "products stage their operands in shared memory"
    if kind == "webgpu":
        source = model.device_sources()["kernels.wgsl"]
        sizes = re.findall(r"@workgroup_size\((\d+), (\d+), (\d+)\)", source)
        assert len(sizes) == len(texts)
        assert max(math.prod(map(int, size)) for size in sizes) <= _WORKGROUP_THREADS


@pytest.mark.parametrize("kind", KINDS)
def test_rules_with_cuda_instructions_say_why_they_decline(kind: str) -> None:
    from tests.cuda.products import matmul
    from tir_schedules import schedule_func

    func = matmul(64, 64, 64, dtype="float32").func
    target = schedule_for(kind, small_residual_block("float32")).target
    declined = dict(schedule_func(func, target).declined)
    reason = f"writes instructions of cuda, this is {kind}"
    for rule in ("attention", "tensor_core_matmul", "cuda_core_matmul"):
        assert declined[rule] == reason


def test_webgpu_binds_no_buffer_twice(compiled: tuple[str, relaxc.CompiledModel]) -> None:
    """An arena would be read and written by one kernel, which WebGPU refuses."""
    kind, model = compiled
    if kind == "webgpu":
        assert not model.report.arena_bytes
    else:
        assert model.report.arena_bytes


def test_what_is_saved(compiled: tuple[str, relaxc.CompiledModel], tmp_path: Path) -> None:
    """A library that a TVM with the device's runtime loads; ROCm's kernels need ROCm."""
    from relax_passes.rocm_libraries import has_rocm

    kind, model = compiled
    if kind == "rocm" and not has_rocm():
        with pytest.raises(UnsupportedTarget, match="no ROCm here to link kernels with"):
            model.save(tmp_path / "model.so")
        assert "amdgcn" in model.device_sources()["kernels.s"]
        return
    loaded = relaxc.load(model.save(tmp_path / "model.so"))
    assert loaded.target["kind"] == kind
    if not tvm.runtime.device(kind, 0).exist:
        text = "runs in a browser" if kind == "webgpu" else "no such device"
        with pytest.raises(IncompatibleArtifact, match=text):
            loaded(*(np.zeros(spec.shape, spec.dtype) for spec in loaded.inputs))
