"""WebGPU gives a kernel eight buffers: fusion stops there, and what needs more is refused."""

from __future__ import annotations

import re

import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

import relaxc
from relaxc.errors import CompileError

_MOST = 8


def module(count: int, concatenated: bool) -> tvm.IRModule:
    """Return a module of `count` inputs: their sum by pairs, and its sine; or all in a row."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{at}", R.Tensor((4, 8), "float32")) for at in range(count)]
    with builder.function("main", inputs):
        with builder.dataflow():
            if concatenated:
                value = builder.emit(op.concat(inputs, axis=0))
            else:
                value = inputs[0]
                for x in inputs[1:]:
                    value = builder.emit(op.sin(builder.emit(op.multiply(value, x))))
            result = builder.emit_output(op.sin(value))
        builder.emit_func_output(result)
    return builder.get()


def buffers(model: relaxc.CompiledModel) -> dict[str, int]:
    """Return how many storage buffers each kernel of a model is given."""
    source = model.device_sources()["kernels.wgsl"]
    kernels = re.split(r"//-+\n// Function: ", source)[1:]
    return {text.split("\n")[0]: text.count("var<storage") for text in kernels}


def test_fusion_stops_at_the_limit() -> None:
    """Twelve inputs: on other targets one kernel, here two, of eight buffers at most."""
    assert len(relaxc.compile(module(12, False), target="opencl").kernels) == 1
    found = buffers(relaxc.compile(module(12, False), target="webgpu"))
    assert len(found) == 2
    assert sorted(found.values())[-1] == _MOST


def test_an_operator_with_more_operands_is_refused() -> None:
    compiled = relaxc.compile(module(_MOST - 1, True), target="webgpu")
    assert max(buffers(compiled).values()) == _MOST
    with pytest.raises(CompileError, match="given 9 tensors, webgpu grants a kernel 8"):
        relaxc.compile(module(_MOST, True), target="webgpu")
