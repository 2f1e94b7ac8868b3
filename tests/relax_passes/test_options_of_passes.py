"""Each option of each pass changes what the pass does, and never the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.build import build_executable
from relax_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from relax_passes.fold_constant import fold_constant
from relax_passes.fuse_operators import fuse_operators
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from relax_passes.schedule_kernels import schedule_kernels
from tests.relax_passes.lowered_modules import call, llvm_context, lowered, random_inputs, structure
from tests.relax_passes.pass_checks import context, module, operators, weights

op = relax.op


@pytest.mark.parametrize(("max_blocks", "kernels"), [(1, 6), (2, 3), (3, 2), (48, 1)])
def test_max_blocks_bounds_a_kernel(max_blocks: int, kernels: int) -> None:
    def build(e: Callable[..., relax.Var], x: relax.Var) -> relax.Var:
        for _ in range(6):
            x = e(op.tanh(x))
        return x

    chosen = fuse_operators.with_options(max_blocks=max_blocks)
    fused, _ = chosen(lowered(build, (4, 8)), llvm_context())
    assert len(structure(fused)) == kernels


@pytest.mark.parametrize(("limit", "left"), [(63, 1), (64, 0)])
def test_max_grown_bytes_bounds_a_folded_constant(limit: int, left: int) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(x, bb.emit(op.broadcast_to(relax.const(np.float32(1)), (4, 4))))

    chosen = fold_constant.with_options(max_grown_bytes=limit)
    folded, _ = chosen(module((4, 4), build), context())
    assert operators(folded)["broadcast_to"] == left


@pytest.mark.parametrize(("limit", "sums"), [(31, 2), (32, 1), (None, 1)])
def test_max_constant_bytes_bounds_the_comparison_of_values(limit: int | None, sums: int) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left, right = (bb.emit(op.add(x, weights(8))) for _ in range(2))
        return op.multiply(left, right)

    chosen = eliminate_common_subexpressions.with_options(max_constant_bytes=limit)
    shared, _ = chosen(module((8,), build), context())
    assert operators(shared)["add"] == sums


def chain(e: Callable[..., relax.Var], x: relax.Var) -> relax.Var:
    """Return a chain whose intermediates all differ in shape from the one before."""
    for _ in range(2):
        x = e(op.permute_dims(x))
        x = e(op.nn.relu(e(op.concat([x, x], 1))))
        x = e(op.sum(x, 1, keepdims=True))
        x = e(op.tanh(e(op.broadcast_to(x, (8, 8)))))
    return x


def compiled(**options: dict[str, Any]) -> tuple[list[np.ndarray], PassContext]:
    """Schedule and plan `chain` with options by pass; return its results and the notes."""
    ctx = llvm_context()
    mod = lowered(chain, (8, 8))
    for graph_pass in (schedule_kernels, plan_memory):
        mod, _ = graph_pass.with_options(**options.get(graph_pass.name, {}))(mod, ctx)
    return call(build_executable(mod, ctx), *random_inputs((8, 8))), ctx


def test_a_rule_that_is_off_takes_no_kernel() -> None:
    want, with_rule = compiled()
    got, without = compiled(schedule_kernels={"without_rules": ["elementwise", "transpose"]})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6)
    on, off = ({k["rule"] for k in ctx.log.metrics["kernels"]} for ctx in (with_rule, without))
    assert {"elementwise", "transpose"} <= on
    assert not {"elementwise", "transpose"} & off


@pytest.mark.parametrize(
    ("name", "text"), [("fallback", "it must stay"), ("elementwize", "did you mean 'elementwise'")]
)
def test_rules_that_cannot_be_off_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        compiled(schedule_kernels={"without_rules": [name]})


def test_memory_options_cost_bytes_and_keep_numbers() -> None:
    want, best = compiled()
    peaks = {"default": best.log.metrics["arena_bytes"]}
    for name, options in {
        "no reuse": {"reuse": False},
        "nothing shared": {"reuse": False, "in_place": False},
        "in turn": {"strategy": "first_fit"},
    }.items():
        got, ctx = compiled(plan_memory=options)
        np.testing.assert_array_equal(got[0], want[0])
        peaks[name] = ctx.log.metrics["arena_bytes"]
    assert peaks["default"] <= peaks["in turn"] < peaks["no reuse"] < peaks["nothing shared"]
    assert peaks["nothing shared"] == best.log.metrics["naive_bytes"]


def test_a_pipeline_takes_options_by_name_or_alias() -> None:
    changed = default_pipeline().with_options("fuse", max_blocks=24)
    (fuse,) = (p for p in changed.phases["fuse"] if p.name == "fuse_operators")
    assert fuse.options.max_blocks == 24
    assert fuse_operators.options.max_blocks != 24
    both = default_pipeline().with_options("fold_constant", max_grown_bytes=9)
    folds = [p for p in both.passes() if p.name == "fold_constant"]
    assert len(folds) > 1 and all(p.options.max_grown_bytes == 9 for p in folds)
    for name, options in [("fuse", {"max_block": 1}), ("sorcery", {}), ("dce", {"x": 1})]:
        with pytest.raises(ValueError, match=name if name == "sorcery" else "has no option"):
            default_pipeline().with_options(name, **options)
    assert "eliminate_dead_code" not in {p.name for p in default_pipeline().without("dce").passes()}
    assert isinstance(changed.run(module((4,), lambda bb, x: op.exp(x)), context()), tvm.IRModule)
