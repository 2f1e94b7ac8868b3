"""Scales of parameters go into weights of parameters, as operators that need no call's inputs."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from relax_passes.decompose_inference import decompose_inference
from relax_passes.fold_fixed_scales import fold_fixed_scales
from tests.relax_passes.fixed_parameters import fixed_module
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op
ONE = (1, 4, 1, 1)


def reads(mod: tvm.IRModule) -> list[str]:
    """Return the operators of those calls that depend on x."""
    main = mod["main"]
    moving, found = {main.params[0]}, []
    for block in main.body.blocks:
        for binding in block.bindings:
            if moving & set(relax.analysis.free_vars(binding.value)):
                moving.add(binding.var)
                if isinstance(binding.value, tvm.ir.Call):
                    found.append(str(binding.value.op.name).removeprefix("relax."))
    return found


def test_a_batch_norm_behind_a_convolution_leaves_a_bias() -> None:
    def build(bb, x, w, b, gamma, beta, mean, var):
        y = bb.emit(R.add(bb.emit(R.nn.conv2d(x, w)), bb.emit(R.reshape(b, ONE))))
        norm = bb.emit(R.nn.batch_norm(y, gamma, beta, mean, var, 1, training=False))
        return bb.emit(relax.TupleGetItem(norm, 0))

    names = dict.fromkeys(("b", "gamma", "beta", "mean", "var"), (4,))
    mod = fixed_module((2, 3, 5, 5), {"w": (4, 3, 2, 2), **names}, build)
    mod = decompose_inference(mod, context())[0]
    assert reads(mod) == ["nn.conv2d", "add", "multiply", "add"]
    vectors = [normal(4) + 3 * (name == "var") for name in names]
    folded = check(fold_fixed_scales, mod, normal(2, 3, 5, 5), normal(4, 3, 2, 2), *vectors)
    assert reads(folded) == ["nn.conv2d", "add"]


@pytest.mark.parametrize("name", ["matmul", "conv2d_transpose", "divide", "scalar"])
def test_other_linear_operators(name: str) -> None:
    shape = {"matmul": (3, 4), "conv2d_transpose": (2, 4, 3, 3)}.get(name, (2, 3, 5, 5))
    weight = {"matmul": (4, 6), "conv2d_transpose": (4, 3, 2, 2)}.get(name, (6, 3, 2, 2))
    scale = {"matmul": (6,), "scalar": ()}.get(name, (6, 1, 1))

    def build(bb, x, w, s):
        if name == "matmul":
            y = R.matmul(x, w)
        elif name == "conv2d_transpose":
            y = R.nn.conv2d_transpose(x, w, groups=2)
        else:
            y = R.nn.conv2d(x, w)
        return bb.emit((R.divide if name == "divide" else R.multiply)(bb.emit(y), s))

    mod = fixed_module(shape, {"w": weight, "s": scale}, build)
    folded = check(fold_fixed_scales, mod, normal(*shape), normal(*weight), normal(*scale))
    assert len(reads(folded)) == 1


def test_scales_that_are_needed_elsewhere_or_vary_along_another_axis_stay() -> None:
    def two_readers(bb, x, w, s):
        y = bb.emit(R.nn.conv2d(x, w))
        return bb.emit(R.add(bb.emit(R.multiply(y, s)), y))

    def along_width(bb, x, w, s):
        return bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, w)), bb.emit(R.reshape(s, [4]))))

    def in_each_call(bb, x, w, s):
        mean = bb.emit(R.mean(x, [0, 2, 3], keepdims=True))
        return bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, w)), bb.emit(R.sum(mean))))

    for build in (two_readers, along_width, in_each_call):
        mod = fixed_module((2, 3, 5, 5), {"w": (4, 3, 2, 2), "s": ONE}, build)
        check(fold_fixed_scales, mod, fires=False)


def test_constants_and_strict_precision_are_left_alone() -> None:
    def build(bb, x, w, s):
        return bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, w)), s))

    w, s = weights(4, 3, 2, 2), weights(*ONE)
    check(fold_fixed_scales, module((2, 3, 5, 5), lambda bb, x: build(bb, x, w, s)), fires=False)
    ctx = context()
    ctx.precision = "strict"
    mod = fixed_module((2, 3, 5, 5), {"w": (4, 3, 2, 2), "s": ONE}, build)
    assert operators(check(fold_fixed_scales, mod, fires=False, ctx=ctx))["multiply"] == 1
