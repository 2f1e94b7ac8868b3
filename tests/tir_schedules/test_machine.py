"""The hardware model, and the same rules built for other processors."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi
from tvm.relax import op
from tvm.script import relax as R
from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules import Machine, host_target, schedule_func
from tir_schedules.llvm.batch_matmul import batch_matmul
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE
from tir_schedules.llvm.matmul import matmul_packed, pack_weight

TARGETS = {
    "sse4": ({"mcpu": "nehalem", "mtriple": "x86_64-linux-gnu"}, r"mulps.*xmm"),
    "avx2": ({"mcpu": "haswell", "mtriple": "x86_64-linux-gnu"}, r"vfmadd.*ymm"),
    "avx512": ({"mcpu": "skylake-avx512", "mtriple": "x86_64-linux-gnu"}, r"vfmadd.*zmm"),
    "neon": ({"mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu"}, r"fmla\s+v"),
}


def _target(name: str) -> Target:
    return Target({"kind": "llvm", "num-cores": 4, **TARGETS[name][0]})


@pytest.mark.parametrize(
    ("name", "bits", "registers", "fma"),
    [
        ("sse4", 128, 16, False),
        ("avx2", 256, 16, True),
        ("avx512", 512, 32, True),
        ("neon", 128, 32, True),
    ],
)
def test_model_from_target(name: str, bits: int, registers: int, fma: bool) -> None:
    machine = Machine.from_target(_target(name))
    assert (machine.name, machine.vector_bits, machine.vector_registers) == (name, bits, registers)
    assert machine.has_fma is fma
    assert machine.cores == 4
    assert machine.lanes("float32") == bits // 32
    assert machine.lanes("float64") == bits // 64


def test_host_target_counts_the_threads_it_is_given() -> None:
    assert Machine.from_target(host_target(3)).cores == 3


def test_cuda_needs_no_device() -> None:
    assert Machine.from_target(Target({"kind": "cuda", "arch": "sm_80"})).kind == "cuda"


def _product(machine: Machine) -> PrimFunc:
    packed = pack_weight(np.ones((64, 96), "float32"), machine)
    x, p = te.placeholder((31, 64), name="x"), te.placeholder(packed.shape, name="p")
    return te.create_prim_func([x, p, topi.tanh(matmul_packed(x, p, 96))])


def _scores(machine: Machine) -> PrimFunc:
    a, b = te.placeholder((2, 31, 64), name="a"), te.placeholder((2, 31, 64), name="b")
    panel = 2 * machine.lanes("float32")
    return te.create_prim_func([a, b, batch_matmul(a, b, False, True, panel=panel)])


def _legal(emit: object, *shapes: tuple[int, ...]) -> PrimFunc:
    params = [relax.Var(f"x{at}", R.Tensor(shape, "float32")) for at, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(emit(*params)))
        builder.emit_func_output(out)
    module = relax.transform.LegalizeOps()(builder.get())
    return next(f for f in module.functions.values() if isinstance(f, PrimFunc))


KERNELS = {
    "matmul": _product,
    "batch_matmul": _scores,
    "row_kernel": lambda _: _legal(op.nn.softmax, (8, 197)),
    "reduction": lambda _: _legal(lambda x: op.sum(x, axis=-1), (8, 197)),
    "transpose": lambda _: _legal(lambda x: op.permute_dims(x, [1, 0]), (64, 48)),
    "elementwise": lambda _: _legal(op.nn.gelu, (4, 96)),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_rules_build_for_other_processors(name: str, kernel: str) -> None:
    target = _target(name)
    scheduled = schedule_func(KERNELS[kernel](Machine.from_target(target)), target)
    assert scheduled.rule == kernel
    func = scheduled.func.with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": func}), target=target, tir_pipeline=KERNEL_PIPELINE)
    asm = library.mod.inspect_source("asm")
    if "matmul" in kernel:
        assert re.search(TARGETS[name][1], asm)
    assert not re.search(r"\b(call\w*|bl)\s+(expf|erff|tanhf)\b", asm)


def test_unknown_target_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no schedule rules"):
        schedule_func(_legal(op.nn.relu, (4,)), Target({"kind": "c"}), None)
