"""Quantized products multiply bytes: zero points come off the sums, and no number changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from relax_passes.fold_constant import fold_constant
from relax_passes.multiply_bytes import NAME, multiply_bytes
from relax_passes.pass_base import PassContext
from relaxc.compiler import import_source
from tests.cuda.ptxas import SM_80, SM_80_OPTIONS
from tests.relax_passes.pass_checks import check, context, operators, run
from tir_schedules import Machine

RANDOM = np.random.default_rng(3)
_TYPES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "int32": TensorProto.INT32}


def integers(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@dataclass(frozen=True)
class Node:
    """An ONNX node: which inputs are given at run time, and which are constants."""

    operator: str
    given: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    inputs: list[str]
    attributes: dict[str, object] = field(default_factory=dict)
    symbolic: bool = False

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(self.operator, self.inputs, ["y"], **self.attributes)
        shapes = {
            name: [f"d{at}" if self.symbolic and at != 1 else n for at, n in enumerate(x.shape)]
            for name, x in self.given.items()
        }
        inputs = [
            helper.make_tensor_value_info(name, _TYPES[str(x.dtype)], shapes[name])
            for name, x in self.given.items()
        ]
        out = helper.make_tensor_value_info("y", TensorProto.INT32, None)
        kept = [numpy_helper.from_array(x, name) for name, x in self.constants.items()]
        graph = helper.make_graph([node], "g", inputs, [out], kept)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])

    def module(self) -> tvm.IRModule:
        return import_source(self.model()).module


def matmul(
    left: np.ndarray, left_zero: np.ndarray, right: np.ndarray, right_zero: np.ndarray, given: str
) -> Node:
    """Return MatMulInteger; `given` names the inputs that come at run time."""
    arrays = dict(zip(("a", "b", "az", "bz"), (left, right, left_zero, right_zero), strict=True))
    known = {name: x for name, x in arrays.items() if name not in given.split()}
    return Node(
        "MatMulInteger", {n: x for n, x in arrays.items() if n not in known}, known, [*arrays]
    )


def convolution(
    x: np.ndarray,
    zero: np.ndarray,
    w: np.ndarray,
    *,
    given: str = "x",
    w_zero: int = 0,
    **how: object,
) -> Node:
    """Return ConvInteger."""
    arrays = {"x": x, "w": w, "xz": zero, "wz": np.array(w_zero, w.dtype)}
    known = {name: a for name, a in arrays.items() if name not in given.split()}
    return Node(
        "ConvInteger", {n: a for n, a in arrays.items() if n not in known}, known, [*arrays], how
    )


A, B = integers("uint8", 5, 24), integers("int8", 24, 7)
IMAGE, KERNEL = integers("uint8", 2, 6, 9, 8), integers("int8", 4, 6, 3, 3)
ZERO = np.array(113, "uint8")
CASES: dict[str, Callable[[], Node]] = {
    "constant_weight": lambda: matmul(A, ZERO, B, np.array(0, "int8"), "a"),
    "zero_point_at_run_time": lambda: matmul(A, ZERO, B, np.array(0, "int8"), "a az"),
    "weight_with_zero_point": lambda: matmul(A, ZERO, B, np.array(9, "int8"), "a"),
    "a_zero_point_a_row": lambda: matmul(A, integers("uint8", 5), B, np.array(9, "int8"), "a az"),
    "a_zero_point_a_column": lambda: matmul(A, ZERO, B, integers("int8", 7), "a b az bz"),
    "batches": lambda: matmul(
        integers("uint8", 3, 5, 24), ZERO, integers("int8", 3, 24, 7), np.array(1, "int8"), "a b"
    ),
    "padding": lambda: convolution(IMAGE, ZERO, KERNEL, pads=[1, 2, 0, 1], strides=[2, 1]),
    "dilation": lambda: convolution(IMAGE, ZERO, KERNEL, pads=[2, 2, 2, 2], dilations=[2, 3]),
    "no_padding": lambda: convolution(IMAGE, ZERO, KERNEL),
    "groups": lambda: convolution(
        IMAGE, ZERO, integers("int8", 4, 3, 3, 3), given="x xz", pads=[1, 1, 1, 1], group=2
    ),
    "unsigned_weight": lambda: convolution(
        IMAGE, np.array(0, "uint8"), integers("uint8", 4, 6, 3, 3), w_zero=128, pads=[1, 1, 1, 1]
    ),
}


def cuda() -> PassContext:
    return PassContext(SM_80, Machine.from_target(SM_80))


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_the_same_to_the_bit(name: str) -> None:
    node = CASES[name]()
    before = node.module()
    after = check(multiply_bytes, before, ctx=cuda())
    inputs = list(node.given.values())
    np.testing.assert_array_equal(run(after, *inputs), run(before, *inputs))
    types = _types_of_products(after)
    assert types and all(dtype in ("int8", "uint8") for dtype in types)


def _types_of_products(mod: tvm.IRModule) -> list[str]:
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            name = getattr(getattr(call, "op", None), "name", "")
            if name == "relax.nn.conv2d":
                found += [str(arg.ty.dtype) for arg in call.args]
            elif name == "relax.call_tir" and "matmul" in call.args[0].name_hint:
                found += [str(arg.ty.dtype) for arg in call.args[1].fields]
    return found


def test_what_is_known_is_added_once() -> None:
    """A constant weight: its sums by the zero point are one constant, not a kernel."""
    for name in ("constant_weight", "padding"):
        folded = fold_constant(CASES[name]().module(), cuda())[0]
        counts = operators(multiply_bytes(folded, cuda())[0])
        assert counts["add"] == 1
        assert not counts["sum"] + counts["multiply"]


DECLINED: dict[str, tuple[Callable[[], Node], str]] = {
    "nine_bits": (
        lambda: convolution(IMAGE, ZERO, integers("uint8", 4, 6, 3, 3), w_zero=100),
        "within 8 bits",
    ),
    "symbolic": (
        lambda: Node(**{**vars(CASES["padding"]()), "symbolic": True}),
        "symbolic size",
    ),
    "weight_at_run_time": (
        lambda: convolution(IMAGE, ZERO, KERNEL, given="x w"),
        "not constant",
    ),
    "vector": (
        lambda: matmul(A[0], ZERO, B, np.array(0, "int8"), "a"),
        "a vector",
    ),
}


@pytest.mark.parametrize("name", DECLINED)
def test_others_stay_and_say_why(name: str) -> None:
    make, reason = DECLINED[name]
    ctx = cuda()
    check(multiply_bytes, make().module(), fires=False, ctx=ctx)
    assert any(who == NAME and reason in why for who, _, why in ctx.log.declined), ctx.log.declined


def test_wider_integers_and_other_targets_stay() -> None:
    x = relax.Var("x", relax.TensorType((4, 8), "int16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.ones((8, 3), "int16"))
            result = builder.emit_output(relax.op.matmul(x, weight, out_dtype="int32"))
        builder.emit_func_output(result)
    ctx = cuda()
    check(multiply_bytes, builder.get(), fires=False, ctx=ctx)
    assert set(ctx.log.declined) == {(NAME, "matmul", "an operand has more than 8 bits")}
    module = CASES["constant_weight"]().module()
    check(multiply_bytes, module, fires=False, ctx=context())
    old = tvm.target.Target({**SM_80_OPTIONS, "arch": "sm_60"})
    check(multiply_bytes, module, fires=False, ctx=PassContext(old, Machine.from_target(old)))
