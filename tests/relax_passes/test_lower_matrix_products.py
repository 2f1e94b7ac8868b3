"""Deep products: computed in parts of the depth, each added to the sums of the one before."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.lower_operators import lower_operators
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights
from tir_schedules.llvm.matmul import depth_parts

R = relax.op
DEEP = 12_288  # parts on any processor with up to 2 MB of second-level cache


def _parts(rows: int | None) -> int:
    return len(depth_parts(DEEP, 24, rows, context().machine))


def _weight_bytes(mod: tvm.IRModule) -> int:
    found: dict[int, int] = {}

    def visit(value: tvm.ir.GenericConst) -> None:
        if isinstance(value.ty, relax.TensorType):
            found[hash(value)] = value.value.numpy().nbytes

    tvm_ffi.structural_walk(mod["main"].body, (tvm.ir.GenericConst, visit), order="pre")
    return sum(found.values())


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_deep_product_is_summed_in_parts(symbolic: bool) -> None:
    rows = tirx.Var("n", "int64") if symbolic else 9
    mod = module((rows, DEEP), lambda bb, x: R.matmul(x, weights(DEEP, 24)))
    lowered = check(lower_operators, mod, normal(9, DEEP))
    assert operators(lowered) == {"call_tir": _parts(None if symbolic else 9)}
    assert _parts(9) > 1


def test_one_row_takes_one_kernel() -> None:
    mod = module((1, DEEP), lambda bb, x: R.matmul(x, weights(DEEP, 24)))
    assert operators(check(lower_operators, mod, normal(1, DEEP))) == {"call_tir": 1}


def test_two_products_share_the_parts_of_one_weight() -> None:
    weight = weights(DEEP, 32)

    def build(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return R.add(bb.emit(R.matmul(x, weight)), bb.emit(R.matmul(bb.emit(R.exp(x)), weight)))

    lowered = check(lower_operators, module((9, DEEP), build), 0.1 * normal(9, DEEP))
    assert _weight_bytes(lowered) == 4 * DEEP * 32
