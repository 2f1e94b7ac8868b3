"""The pass over whole functions: chains, readers, symbolic sizes, branches, options, its report."""

from __future__ import annotations

import cProfile
import dataclasses
import pstats
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as RS

from relax_passes.algebra.rule_table import as_markdown
from relax_passes.apply_algebraic_rules import apply_algebraic_rules
from relax_passes.pass_base import PassContext
from relax_passes.pass_options import OptionError
from tests.relax_passes.pass_checks import check, context, module, normal, operators, run, weights

R = relax.op
DOCUMENT = Path(__file__).parents[2] / "docs" / "algebraic-rules.md"


def checked() -> PassContext:
    """Return a context in which the engine recounts the cost of every sweep."""
    return dataclasses.replace(context(), debug=True)


def const(value: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.array(value, dtype))


def chain(length: int) -> tvm.IRModule:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for i in range(length):
            x = bb.emit(R.add(x, const(1.0 + i % 3)))
        return R.exp(x)

    return module((4,), build)


def test_a_chain_of_constants_becomes_one() -> None:
    changed = check(apply_algebraic_rules, chain(5), normal(4), ctx=checked())
    assert operators(changed) == {"add": 1, "exp": 1}


def test_a_reader_that_a_rule_made_dead_hides_nothing() -> None:
    """`or_true` leaves x > 1 with one reader: not (x > 1) = x <= 1 pays in the same run."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        greater = bb.emit(R.greater(x, const(1.0)))
        other = bb.emit(R.logical_not(greater))
        row = bb.emit(R.take(greater, relax.const(1, "int64"), axis=0))
        known = bb.emit(R.logical_or(relax.const(np.array(True)), row))
        return bb.emit(relax.Tuple([other, known]))

    mod = module((3, 4), build)
    changed, _ = apply_algebraic_rules(mod, checked())
    assert operators(changed) == {"less_equal": 1}
    assert not apply_algebraic_rules(changed, checked())[1]


def test_a_chain_with_a_cast_to_the_same_type_becomes_one() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(x, const(1.0)))
        y = bb.match_cast(y, relax.TensorType((2, 3), "float32"))
        y = bb.emit(R.add(y, const(2.0)))
        return bb.emit(R.add(y, const(3.0)))

    changed = check(apply_algebraic_rules, module((2, 3), build), normal(2, 3))
    assert operators(changed) == {"add": 1}


def test_work_is_linear_in_the_length() -> None:
    """Calls of functions are counted: they are the same on a loaded machine."""

    def calls(length: int) -> int:
        mod, profile = chain(length), cProfile.Profile()
        profile.runcall(apply_algebraic_rules, mod, context())
        return pstats.Stats(profile).total_calls

    calls(10)  # the rules' texts are read once
    assert calls(2000) < 11 * calls(200)


def test_image_normalization_becomes_a_scale_and_a_shift() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.divide(x, const(255.0)))
        y = bb.emit(R.subtract(y, weights(3, 1, 1, seed=1)))
        y = bb.emit(R.divide(y, weights(3, 1, 1, seed=2, positive=True)))
        return R.add(y, const(0.5))

    changed = check(
        apply_algebraic_rules, module((1, 3, 4, 4), build), normal(1, 3, 4, 4), ctx=checked()
    )
    assert operators(changed) == {"multiply": 1, "add": 1}


def test_a_value_with_another_reader_is_kept() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(x, const(1.0)))
        return R.multiply(bb.emit(R.add(y, const(2.0))), y)

    ctx = checked()
    check(apply_algebraic_rules, module((4,), build), fires=False, ctx=ctx)
    assert ("apply_algebraic_rules", "add_constants at lv1", "lv has another reader") in (
        ctx.log.declined
    )


def test_both_readers_may_be_in_the_pattern() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        root = bb.emit(R.sqrt(x))
        return R.multiply(root, root)

    changed = check(apply_algebraic_rules, module((4,), build), np.abs(normal(4)), ctx=checked())
    assert not operators(changed)


def test_symbolic_sizes() -> None:
    n = tvm.tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(bb.emit(R.multiply(x, const(2.0))), const(1.0)))
        y = bb.emit(R.multiply(y, const(3.0)))
        return R.max(bb.emit(R.exp(y)), [1])

    changed = check(apply_algebraic_rules, module((n, 5), build), normal(3, 5), ctx=checked())
    # The exponential is evaluated on n maxima.
    kinds = [b.value for block in changed["main"].body.blocks for b in block.bindings]
    assert operators(changed) == {"multiply": 1, "add": 1, "max": 1, "exp": 1}
    assert kinds[-1].op.name == "relax.exp"


def test_sizes_that_may_differ_stay() -> None:
    n = tvm.tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        wide = bb.emit(R.broadcast_to(x, (n, n)))
        return R.sum(wide, [0])

    ctx = checked()
    check(apply_algebraic_rules, module((1, n), build), fires=False, ctx=ctx)
    assert "sizes are symbolic" in {reason for _, _, reason in ctx.log.declined}


def test_integers_wrap_around() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.multiply(x, const(2**30, "int32")))
        y = bb.emit(R.multiply(y, const(7, "int32")))
        return R.add(bb.emit(R.add(y, const(2**31 - 1, "int32"))), const(5, "int32"))

    x = np.arange(-8, 8, dtype="int32")
    changed = check(apply_algebraic_rules, module((16,), build, "int32"), x, ctx=checked())
    assert operators(changed) == {"multiply": 1, "add": 1}
    with np.errstate(over="ignore"):
        wanted = x * np.int32(2**30) * np.int32(7) + np.int32(2**31 - 1) + np.int32(5)
    np.testing.assert_array_equal(run(changed, x), wanted)


def test_integer_division_is_not_regrouped() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.multiply(bb.emit(R.divide(x, const(3, "int32"))), const(6, "int32"))

    check(apply_algebraic_rules, module((4,), build, "int32"), fires=False, ctx=checked())


def test_constants_that_overflow_stay_apart() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.multiply(bb.emit(R.multiply(x, const(1e30))), const(1e30))

    ctx = checked()
    check(apply_algebraic_rules, module((4,), build), fires=False, ctx=ctx)
    assert "the combined constant overflows" in {reason for _, _, reason in ctx.log.declined}


def test_a_value_that_leaves_its_block_is_looked_through() -> None:
    @I.ir_module
    class Module:
        @RS.function
        def main(x: RS.Tensor((4,), "float32")) -> RS.Tensor((4,), "float32"):
            with RS.dataflow():
                a = RS.tanh(x)
                b = RS.negative(a)
                c = RS.multiply(b, RS.const(1.0, "float32"))
                d = RS.negative(c)
                RS.output(c, d)
            y = RS.add(c, d)
            return y

    changed = check(apply_algebraic_rules, Module, normal(4), ctx=checked())
    assert operators(changed) == {"tanh": 1, "negative": 1, "add": 1}


def test_branches_are_rewritten() -> None:
    @I.ir_module
    class Module:
        @RS.function
        def main(c: RS.Tensor((), "bool"), x: RS.Tensor((4,), "float32")):
            if c:
                a = RS.negative(x)
                b = RS.negative(a)
                y = RS.exp(b)
            else:
                y = RS.multiply(x, RS.const(1.0, "float32"))
            return y

    for condition in (True, False):
        changed = check(
            apply_algebraic_rules, Module, np.array(condition), normal(4), ctx=checked()
        )
    branch = changed["main"].body.blocks[0].bindings[0].value.true_branch
    assert [b.value.op.name for b in branch.blocks[0].bindings] == ["relax.exp"]


def test_strict_keeps_bits() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.negative(bb.emit(R.negative(x))))  # exact
        y = bb.emit(R.divide(y, const(4.0)))  # exact
        return R.add(bb.emit(R.add(y, const(0.1))), const(0.2))  # rounds

    mod = module((4,), build)
    wanted = {"multiply": 1, "add": 2}
    strict = dataclasses.replace(checked(), precision="strict")
    assert operators(check(apply_algebraic_rules, mod, normal(4), ctx=strict)) == wanted
    optional = apply_algebraic_rules.with_options(strict=True)
    assert operators(check(optional, mod, normal(4), ctx=checked())) == wanted
    assert operators(check(apply_algebraic_rules, mod, normal(4), ctx=checked())) == {
        **{"multiply": 1, "add": 1}
    }


def test_rules_and_families_can_be_off() -> None:
    one = apply_algebraic_rules.with_options(without=["add_constants", "small_sums_first"])
    family = apply_algebraic_rules.with_options(without=("associative", "broadcasts"))
    others = apply_algebraic_rules.with_options(only=("softmax", "reductions"))
    for graph_pass in (one, family, others):
        check(graph_pass, chain(3), fires=False)
    alone = apply_algebraic_rules.with_options(only=("add_constants",))
    assert operators(check(alone, chain(3))) == {"add": 1, "exp": 1}
    with pytest.raises(OptionError, match="did you mean 'softmax'"):
        apply_algebraic_rules.with_options(only=("sofmax",))(chain(3), context())
    with pytest.raises(OptionError, match="did you mean 'associative'"):
        apply_algebraic_rules.with_options(without=("asociative",))(chain(3), context())


def test_the_report_counts_each_rule() -> None:
    ctx = context()
    apply_algebraic_rules(chain(5), ctx)
    assert ("apply_algebraic_rules", "add_constants: 4") in ctx.log.fired
    saved = ctx.log.metrics["algebra_saved"]
    assert saved == {"flops": 16, "bytes": 4 * (16 + 16 + 4), "calls": 4}


def test_documentation_shows_this_table() -> None:
    table = DOCUMENT.read_text().split("<!-- table -->\n")[1].split("\n<!-- end -->")[0]
    assert table == as_markdown()
