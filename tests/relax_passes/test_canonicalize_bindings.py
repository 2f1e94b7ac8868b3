"""Renamings go, checks of sizes stay."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relax_passes.canonicalize_bindings import canonicalize_bindings


def bindings(mod: tvm.IRModule) -> list[relax.Binding]:
    """Return the bindings of `main`."""
    return [binding for block in mod["main"].body.blocks for binding in block.bindings]


def test_a_cast_to_a_known_symbol_stays() -> None:
    # TVM's pass takes it for a proof that n is m, and drops it.
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("m", 4), "float32")) -> R.Tensor(
            ("m", 4), "float32"
        ):
            m = T.int64()
            with R.dataflow():
                same = R.match_cast(x, R.Tensor((m, 4), "float32"))
                gv = R.add(same, y)
                R.output(gv)
            return gv

    kept = bindings(canonicalize_bindings(Module))
    assert isinstance(kept[0], relax.MatchCast)
    relax.analysis.well_formed(canonicalize_bindings(Module))


def test_aliases_and_elements_of_tuples_go() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                a = x
                b = R.add(a, a)
                pair = (b, a)
                c = pair[0]
                d = R.match_cast(c, R.Tensor((2, 4), "float32"))
                e = R.multiply(d, x)
                gv = e
                R.output(gv)
            return gv

    mod = canonicalize_bindings(Module)
    relax.analysis.well_formed(mod)
    left = [binding.value for binding in bindings(mod)]
    assert [type(value) for value in left] == [relax.Call, relax.Tuple, relax.Call]
    # The result is computed under its own name, which leaves the block.
    assert mod["main"].body.body == bindings(mod)[-1].var


def test_an_element_with_a_local_name_is_read_in_its_own_block_only() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                a = R.exp(x)
                pair = (a, x)
                R.output(pair)
            between = R.exp(x)
            with R.dataflow():
                b = pair[0]
                c = pair[1]
                d = R.add(b, c)
                gv = R.add(d, between)
                R.output(gv)
            return gv

    mod = canonicalize_bindings(Module)
    relax.analysis.well_formed(mod)
    _, pair, _, b, d, _ = bindings(mod)
    assert isinstance(b.value, relax.TupleGetItem) and b.value.tuple_value == pair.var
    assert list(d.value.args) == [b.var, mod["main"].params[0]]


def test_nothing_to_rename_leaves_the_same_module() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                gv = R.exp(x)
                R.output(gv)
            return gv

    assert canonicalize_bindings(Module).same_as(Module)
