"""A local name that another block reads becomes a plain one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import relaxc
from relax_passes.names_between_blocks import publish_names
from relax_passes.simplify_views import simplify_views
from tests.relax_passes.pass_checks import check, context


@I.ir_module
class TwoBlocks:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((16,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            view = R.reshape(a, (2, 8))
            R.output(view)
        b = R.exp(x)
        with R.dataflow():
            c = R.reshape(view, (16,))
            d = R.reshape(b, (16,))
            gv = R.add(c, d)
            R.output(gv)
        return gv


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), p: R.Tensor((), "bool")) -> R.Tensor((16,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            view = R.reshape(a, (2, 8))
            R.output(view)
        if p:
            c = R.reshape(view, (16,))
            gv = R.tanh(c)
        else:
            d = R.reshape(view, (16,))
            gv = R.negative(d)
        return gv


def _names(mod: tvm.IRModule) -> dict[str, type]:
    return {b.var.name: type(b.var) for k in mod["main"].body.blocks for b in k.bindings}


def test_a_view_behind_a_view_of_another_block_is_read_there() -> None:
    x = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    changed = check(simplify_views, TwoBlocks, x)
    assert _names(changed)["a"] is relax.Var


@pytest.mark.parametrize("taken", [True, False])
def test_a_view_behind_a_view_outside_a_branch_is_read_there(taken: bool) -> None:
    changed, modified = simplify_views(Branches, context())
    assert modified and _names(changed)["a"] is relax.Var
    relax.analysis.well_formed(changed)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    wanted = np.tanh(np.exp(x)) if taken else -np.exp(x)
    got = relaxc.compile(changed, threads=1)(x, np.asarray(taken))
    np.testing.assert_allclose(got, wanted.reshape(16), rtol=1e-5)


def test_names_that_stay_in_their_block_leave_the_same_module() -> None:
    assert publish_names(TwoBlocks).same_as(TwoBlocks)
    assert publish_names(Branches).same_as(Branches)
