"""Views, transposes and casts that change nothing disappear."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

import relaxc
from relax_passes.lower_operators import lower_operators
from relax_passes.simplify_views import simplify_views
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def test_pool_then_reshape_then_softmax_has_no_reshape_kernel() -> None:
    """Case P8 of the regressions."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        pooled = bb.emit(R.nn.adaptive_avg_pool2d(x, (1, 1)))
        return R.nn.softmax(bb.emit(R.reshape(pooled, (1, 8, 1, 1))), axis=1)

    changed = check(simplify_views, module((1, 8, 4, 4), build), normal(1, 8, 4, 4))
    assert operators(changed) == {"nn.adaptive_avg_pool2d": 1, "nn.softmax": 1}
    lowered, _ = lower_operators(changed, context())
    assert operators(lowered) == {"call_tir": 2}


def test_two_transposes_cancel() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [0, 2, 3, 1]))
        return R.exp(bb.emit(R.permute_dims(y, [0, 3, 1, 2])))

    changed = check(simplify_views, module((2, 3, 4, 5), build), normal(2, 3, 4, 5))
    assert operators(changed) == {"exp": 1}


@pytest.mark.parametrize(
    ("order", "view", "last"),
    [
        ([2, 1, 0], (1, 6, 4), "permute_dims"),  # as torch.einsum writes "ij,kj->ik"
        ([0, 2, 1], (6, 1, 4), "permute_dims"),
        ([0, 2, 1], (3, 2, 4), "reshape"),  # it splits an axis
    ],
)
def test_a_view_of_a_transpose(order: list[int], view: tuple, last: str) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.reshape(bb.emit(R.permute_dims(x, order)), view))
        return R.matmul(y, weights(4, 3))

    fires = last == "permute_dims"
    changed = check(simplify_views, module((1, 4, 6), build), normal(1, 4, 6), fires=fires)
    views = [b.value.op.name for b in changed["main"].body.blocks[0].bindings[:-1]]
    assert views[-1] == f"relax.{last}" and views.count("relax.permute_dims") == 1


def test_a_view_that_joins_axes_of_a_transpose() -> None:
    """Batch and heads of a batched product, which then reads the transpose in place."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [0, 1, 3, 2]))
        return R.matmul(bb.emit(R.reshape(y, (6, 5, 4))), weights(6, 4, 7))

    changed = check(simplify_views, module((2, 3, 4, 5), build), normal(2, 3, 4, 5))
    assert [b.value.op.name for b in changed["main"].body.blocks[0].bindings] == [
        "relax.reshape", "relax.permute_dims", "relax.matmul",
    ]  # fmt: skip


def test_a_view_of_a_transpose_that_others_read_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [1, 0]))
        return R.add(
            bb.emit(R.reshape(bb.emit(R.reshape(y, (5, 1, 4))), (5, 4))), bb.emit(R.exp(y))
        )

    changed = check(simplify_views, module((4, 5), build), normal(4, 5))
    assert operators(changed)["permute_dims"] == 1


def test_two_transposes_become_one() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.permute_dims(x, [1, 2, 0]))
        return R.permute_dims(y, [1, 0, 2])

    changed = check(simplify_views, module((2, 3, 4), build), normal(2, 3, 4))
    assert operators(changed) == {"permute_dims": 1}


def test_a_chain_of_views_with_a_symbolic_dimension_becomes_one() -> None:
    n = tvm.tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.reshape(x, (n, 4)))
        y = bb.emit(R.expand_dims(y, 2))
        y = bb.emit(R.permute_dims(y, [0, 2, 1]))  # moves an axis of extent 1 only
        y = bb.emit(R.astype(y, "float32"))
        return R.exp(bb.emit(R.squeeze(y, [1])))

    changed = check(simplify_views, module((n, 2, 2), build), normal(3, 2, 2))
    assert operators(changed) == {"reshape": 1, "exp": 1}


def test_views_around_a_cast_to_the_same_type_become_one() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.reshape(x, (2, 4)))
        y = bb.match_cast(y, relax.TensorType((2, 4), "float32"))
        return R.exp(bb.emit(R.expand_dims(y, 1)))

    changed = check(simplify_views, module((2, 2, 2), build), normal(2, 2, 2))
    assert operators(changed) == {"reshape": 1, "exp": 1}


def test_views_and_casts_that_change_something_stay() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.astype(bb.emit(R.reshape(x, (6,))), "float16"))
        z = bb.emit(R.exp(bb.emit(R.permute_dims(x, [1, 0]))))
        return R.add(
            bb.emit(R.broadcast_to(bb.emit(R.astype(y, "float32")), (2, 6))),
            bb.emit(R.reshape(bb.emit(R.concat([z, z], 0)), (2, 6))),
        )

    check(simplify_views, module((2, 3), build), fires=False)


def test_views_of_tensors_without_elements_stay() -> None:
    """To `R.reshape` a 0 means the size that was there: not every shape can be written."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.expand_dims(bb.emit(R.expand_dims(x, 0)), 0))
        return R.exp(bb.emit(R.permute_dims(y, [4, 0, 1, 2, 3])))

    mod = module((16, 8, 0), build)
    assert operators(check(simplify_views, mod, fires=False))["expand_dims"] == 2
    lowered, _ = lower_operators(mod, context())
    assert operators(lowered) == {"call_tir": 4}
    assert relaxc.compile(mod, progress=False)(normal(16, 8, 0)).shape == (0, 1, 1, 16, 8)
