"""The worked example of docs/add-a-pass.md is a pass that works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.constant_values import array_of
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import REGISTRY, GraphPass, PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from tests.relax_passes.pass_checks import check, module, normal, operators

GUIDE = Path(__file__).parents[2] / "docs" / "add-a-pass.md"
op = relax.op


@pytest.fixture
def example() -> Iterator[GraphPass]:
    """Return the pass that the guide defines; it is registered while the test runs."""
    section = GUIDE.read_text().split("## Worked example")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    scope = {
        "__name__": "guide",
        "np": np,
        "tvm": tvm,
        "relax": relax,
        "CallRewriter": CallRewriter,
        "rewrite_functions": rewrite_functions,
        "remove_dead_bindings": remove_dead_bindings,
        "mutator": mutator,
        "array_of": array_of,
        "graph_pass": graph_pass,
        "PassContext": PassContext,
    }
    exec(compile(code, str(GUIDE), "exec"), scope)
    yield scope["merge_scaled_terms"]
    del REGISTRY["merge_scaled_terms"]


def scaled(bb: relax.BlockBuilder, x: relax.Expr, factor: float) -> relax.Var:
    return bb.emit(op.multiply(x, relax.const(np.float32(factor))))


def test_multiples_of_one_tensor_are_added(example: GraphPass) -> None:
    mod = module((3, 4), lambda bb, x: op.add(scaled(bb, x, 2), scaled(bb, x, 3)))
    assert operators(check(example, mod, normal(3, 4))) == {"multiply": 1}


def test_multiples_of_two_tensors_are_not(example: GraphPass) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(scaled(bb, x, 2), scaled(bb, bb.emit(op.exp(x)), 3))

    check(example, module((3, 4), build), normal(3, 4), fires=False)
