"""Every rule of the table is proved on random tensors: it fires, it saves, its numbers hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.algebra.rewriter import Rewriter
from relax_passes.algebra.rule import Ieee, Rule
from relax_passes.algebra.rule_table import FAMILIES, RULES
from relax_passes.lower_operators import lower_operators
from tests.plain_build import build_plainly
from tests.relax_passes.algebra.instances import INSTANCES
from tests.relax_passes.algebra.proofs import Proof, dtypes, make_proof
from tests.relax_passes.pass_checks import context

CASES = [
    (rule, dtype, special)
    for rule in RULES
    for kind in rule.kinds
    for dtype in dtypes(rule, kind)
    for special in ((False, True) if kind == "f" and rule.ieee is not Ieee.NONFINITE else (False,))
]
FAMILY_OF = {rule.name: family.name for family in FAMILIES for rule in family.rules}


def case_id(case: object) -> str:
    return getattr(case, "name", str(case)) if not isinstance(case, bool) else "special" * case


def proof_of(rule: Rule, dtype: str, special: bool = False) -> Proof:
    seed = sum(map(ord, rule.name + dtype)) + special
    return make_proof(rule, INSTANCES.get(rule.name), seed, dtype, special)


def rewrite(rule: Rule, mod: tvm.IRModule, strict: bool = False) -> tuple[relax.Function, Rewriter]:
    rewriter = Rewriter([rule], strict=strict, debug=True)
    changed = tvm.IRModule({"main": rewriter.rewrite(mod["main"])})
    return relax.transform.Normalize()(changed)["main"], rewriter


@dataclass
class Numbers:
    """Results of both sides of each case of a family, compiled and run together."""

    left: dict[tuple, np.ndarray]
    right: dict[tuple, np.ndarray]


@cache
def numbers_of(family: str) -> Numbers | str:
    """Compile both sides of every case of a family into one module, and run them.

    A fault is returned as text, so that it is met once and not in every case.
    """
    try:
        return _run([case for case in CASES if FAMILY_OF[case[0].name] == family])
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"


def _run(cases: list[tuple[Rule, str, bool]]) -> Numbers:
    functions, inputs = {}, {}
    for at, case in enumerate(cases):
        proof = proof_of(*case)
        changed, _ = rewrite(case[0], proof.module)
        inputs[case] = (at, [tvm.runtime.tensor(a) for a in proof.inputs])
        for side, func in (("left", proof.module["main"]), ("right", changed)):
            own = relax.utils.copy_with_new_vars(func)  # two functions share no variables
            functions[f"{side}{at}"] = own.with_attr("global_symbol", f"{side}{at}")
    ctx = context()
    lowered, _ = lower_operators(tvm.IRModule(functions), ctx)
    machine = relax.VirtualMachine(build_plainly(lowered, checked=False), tvm.cpu())
    found = Numbers({}, {})
    for case, (at, arrays) in inputs.items():
        found.left[case] = machine[f"left{at}"](*arrays).numpy()
        found.right[case] = machine[f"right{at}"](*arrays).numpy()
    return found


@pytest.mark.parametrize("rule", RULES, ids=case_id)
def test_the_rule_fires_and_saves(rule: Rule) -> None:
    for kind in rule.kinds:
        proof = proof_of(rule, dtypes(rule, kind)[0])
        changed, rewriter = rewrite(rule, proof.module)
        assert rewriter.fired[rule.name] >= 1, rewriter.declined
        # Between two layouts of the same numbers, what is saved is a conversion.
        relayout = rule.name.startswith("convolution_as_product") and rewriter.saved.calls > 0
        assert rewriter.saved.flops > 0 or rewriter.saved.bytes > 0 or relayout
        relax.analysis.well_formed(tvm.IRModule({"main": changed}))
        again = Rewriter([rule])
        again.rewrite(changed)
        assert not again.fired


@pytest.mark.parametrize("rule", RULES, ids=case_id)
def test_strict_keeps_to_exact_rules(rule: Rule) -> None:
    for kind in rule.kinds:
        _, rewriter = rewrite(rule, proof_of(rule, dtypes(rule, kind)[0]).module, strict=True)
        assert bool(rewriter.fired) == (rule.ieee is Ieee.EXACT or kind == "i")


@pytest.mark.parametrize(("rule", "dtype", "special"), CASES, ids=case_id)
def test_both_sides_are_equal(rule: Rule, dtype: str, special: bool) -> None:
    numbers = numbers_of(FAMILY_OF[rule.name])
    assert isinstance(numbers, Numbers), numbers
    left, right = (side[rule, dtype, special] for side in (numbers.left, numbers.right))
    assert left.dtype == right.dtype and left.shape == right.shape
    if left.dtype.kind != "f":
        np.testing.assert_array_equal(left, right)
        return
    finite = np.isfinite(left)
    if rule.ieee is Ieee.EXACT:
        same = (left == right) & (np.signbit(left) == np.signbit(right))
        assert np.all(same | (np.isnan(left) & np.isnan(right)))
    elif rule.ieee is Ieee.ZERO_SIGN:
        np.testing.assert_array_equal(left, right)
    elif special:
        # What overflows may do so elsewhere; NaN stays NaN.
        np.testing.assert_array_equal(np.isnan(left), np.isnan(right))
    else:
        scale = np.max(np.abs(left), initial=1e-30, where=finite)
        assert np.all(finite)
        np.testing.assert_allclose(right, left, rtol=1e-5, atol=1e-5 * scale)


def test_names_are_unique_and_every_rule_says_when_it_pays() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(rule.pays and " = " in rule.equation for rule in RULES)
