"""Categories read from the TIR of legalized operators (C1), with the accesses as evidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax, te, tirx
from tvm.script import tirx as T

from frontends.computations.checked_indices import checked_indices
from relax_passes.analysis.category import Category, Verdict, categorize
from relax_passes.fuse_operators import fuse_operators
from tests.relax_passes.lowered_modules import llvm_context, lowered

op = relax.op
_ONES = relax.const(np.ones(8, "float32"))
_INDEX = relax.const(np.zeros(3, "int64"))


def verdict(build: Callable[..., relax.Expr], *shapes: tuple[int | tirx.Var, ...]) -> Verdict:
    """Return the verdict on the only kernel of a module."""
    mod = lowered(build, *shapes)
    (func,) = (f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    return categorize(func)


ELEMENTWISE = {
    "relu": op.nn.relu,
    "exp": op.exp,
    "sigmoid": op.sigmoid,
    "add a scalar": lambda x: op.add(x, relax.const(np.float32(1))),
    "add itself": lambda x: op.add(x, x),
    "tril": op.tril,  # a mask of the point itself
    "cast": lambda x: op.astype(x, "float64"),
    "clip": lambda x: op.clip(x, 0, 1),
    "fill": lambda x: op.full((4, 4), relax.const(np.float32(1))),
}
BROADCAST = {
    "bias": lambda x: op.add(x, _ONES),
    "broadcast_to": lambda x: op.broadcast_to(x, (3, 4, 8)),
}
INJECTIVE = {
    "permute_dims": op.permute_dims,
    "take": lambda x: op.take(x, _INDEX, axis=0),
    "strided_slice": lambda x: op.strided_slice(x, [0], [1], [3]),
    "concat": lambda x: op.concat([x, x], 0),
    "pad": lambda x: op.nn.pad(x, (1, 1, 1, 1)),
    "repeat": lambda x: op.repeat(x, 2, 0),
    "flip": lambda x: op.flip(x, 0),
}
REDUCTION = {
    "sum": lambda x: op.sum(x, 1),
    "max": lambda x: op.max(x, 0),
    "mean": lambda x: op.mean(x, 1),
    "softmax": op.nn.softmax,
    "layer_norm": lambda x: op.nn.layer_norm(x, _ONES, _ONES, [-1]),
    "rms_norm": lambda x: op.nn.rms_norm(x, _ONES, [-1]),
    "argmax": lambda x: op.argmax(x, 1),
}


@pytest.mark.parametrize(
    ("category", "build"),
    [
        pytest.param(category, build, id=name)
        for category, table in [
            (Category.ELEMENTWISE, ELEMENTWISE),
            (Category.BROADCAST, BROADCAST),
            (Category.INJECTIVE, INJECTIVE),
            (Category.REDUCTION, REDUCTION),
        ]
        for name, build in table.items()
    ],
)
def test_operators_of_one_matrix(category: Category, build: Callable[[relax.Var], relax.Expr]):
    assert verdict(lambda e, x: e(build(x)), (4, 8)).category == category


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        pytest.param(op.matmul, [(4, 8), (8, 5)], id="matmul"),
        pytest.param(op.matmul, [(2, 4, 8), (2, 8, 5)], id="batch matmul"),
        pytest.param(op.nn.conv2d, [(1, 8, 6, 6), (4, 8, 3, 3)], id="conv2d"),
        pytest.param(op.nn.conv2d, [(1, 8, 6, 6), (4, 8, 1, 1)], id="1x1 conv2d"),
        pytest.param(
            lambda x, w: op.nn.conv2d(x, w, groups=8), [(1, 8, 6, 6), (8, 1, 3, 3)], id="depthwise"
        ),
        pytest.param(op.nn.conv1d, [(1, 8, 6), (4, 8, 3)], id="conv1d"),
        pytest.param(lambda x: op.nn.max_pool2d(x, (3, 3)), [(1, 8, 6, 6)], id="max_pool2d"),
        pytest.param(lambda x: op.nn.avg_pool2d(x, (2, 2)), [(1, 8, 6, 6)], id="avg_pool2d"),
    ],
)
def test_complex_operators_take_epilogues(build: Callable[..., relax.Expr], shapes: list):
    result = verdict(lambda e, *xs: e(build(*xs)), *shapes)
    assert result.category == Category.COMPLEX_OUT_FUSABLE


@pytest.mark.parametrize(
    ("build", "shape", "category"),
    [
        pytest.param(lambda x: op.matmul(x, x), (8,), Category.REDUCTION, id="dot product"),
        pytest.param(
            lambda x: op.matmul(x, op.permute_dims(x)),
            (4, 8),
            Category.COMPLEX_OUT_FUSABLE,
            id="rows by rows",
        ),
    ],
)
def test_a_product_of_a_tensor_with_itself(build, shape, category: Category) -> None:
    """Fused, it has one operand, which changes nothing: the pass would not end with one run."""
    mod = lowered(lambda e, x: e(op.negative(e(build(x)))), shape)
    products = [
        f for v, f in mod.functions.items()
        if isinstance(f, tirx.PrimFunc) and "matmul" in v.name_hint
    ]  # fmt: skip
    assert [categorize(f).category for f in products] == [category]
    fused, _ = fuse_operators(mod, llvm_context())
    kernels = {
        v.name_hint: categorize(f).category
        for v, f in fused.functions.items()
        if isinstance(f, tirx.PrimFunc) and "matmul" in v.name_hint
    }
    assert list(kernels.values()) == [category]


def test_scatter_is_opaque():
    index = relax.const(np.zeros((4, 8), "int64"))
    result = verdict(lambda e, x: e(op.scatter_elements(x, index, x)), (4, 8))
    assert result.category == Category.OPAQUE


def test_symbolic_shapes_do_not_change_the_category():
    n = tirx.Var("n", "int64")
    assert verdict(lambda e, x: e(op.nn.relu(x)), (n, 8)).category == Category.ELEMENTWISE
    assert verdict(lambda e, x: e(op.add(x, _ONES)), (n, 8)).category == Category.BROADCAST
    assert verdict(lambda e, x: e(op.sum(x, 1)), (n, 8)).category == Category.REDUCTION


def test_evidence_names_the_buffers_and_their_indices():
    result = verdict(lambda e, x: e(op.add(x, _ONES)), (4, 8))
    assert [access.category for access in result.accesses] == [
        Category.ELEMENTWISE,
        Category.BROADCAST,
    ]
    assert result.anchor == "T_add"
    assert all(access.indices for access in result.accesses)


def test_function_without_blocks_is_opaque():
    @T.prim_func(s_tir=True)
    def empty(a: T.handle):
        T.match_buffer(a, (4,), "float32")
        T.evaluate(0)

    assert categorize(empty).category == Category.OPAQUE


def test_store_that_misses_the_blocks_own_point_is_opaque():
    @T.prim_func(s_tir=True)
    def shifted(a: T.handle, b: T.handle):
        x = T.match_buffer(a, (4,), "float32")
        y = T.match_buffer(b, (5,), "float32")
        for i in range(4):
            with T.sblock("shift"):
                vi = T.axis.spatial(4, i)
                y[vi + 1] = x[vi]

    assert categorize(shifted).category == Category.OPAQUE


@pytest.mark.parametrize("rows", [0, 2])
def test_statements_written_by_hand_are_opaque_also_over_nothing(rows: int):
    indices = te.placeholder((rows, 3), "int64", name="indices")
    func = te.create_prim_func([indices, checked_indices(indices, [4] * 3, "out of range")])
    assert categorize(func).category == Category.OPAQUE


def test_fused_kernel_has_its_greatest_category():
    mod = lowered(lambda e, x: e(op.sum(e(op.exp(x)), 1)), (4, 8))
    fused, _ = fuse_operators(mod, llvm_context())
    (func,) = (f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc))
    assert categorize(func).category == Category.REDUCTION
