"""Sizes known only at run time are checked before memory depends on them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, StringImm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from frontends.computations.checked_indices import checked_indices
from relax_passes.build import build_executable
from relax_passes.drop_index_checks import drop_index_checks, without_index_checks
from relax_passes.memory.check_sizes import check_sizes
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.memory.size_conditions import ADDRESS_SPACE
from relax_passes.memory.size_fault import SIZE_FAULT
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import context


@I.ir_module
class Square:
    """Return zeros (n, n) of a vector's length n: more than memory for no absurd n."""

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n", "n"), "float32"):
        n = T.int64()
        with R.dataflow():
            y = R.zeros(R.shape([n, n]), "float32")
            R.output(y)
        return y


@I.ir_module
class Stated:
    """State that n is even; nothing else depends on it."""

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        with R.dataflow():
            holds = R.shape([T.Select(n % 2 == 0, T.int64(1), T.int64(0))])
            even = R.match_cast(holds, R.Shape([1]))  # noqa: F841 - a statement about n
            y = R.add(x, x)
            R.output(y)
        return y


def planned(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose memory is planned and whose sizes are not checked."""
    pipeline = default_pipeline().with_phase("memory", plan_memory)
    with context().target:
        return pipeline.run(mod, context())


def run(mod: tvm.IRModule, *shape: int) -> np.ndarray:
    machine = relax.VirtualMachine(build_executable(mod, context()), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(np.ones(shape, "float32"))).numpy()


def checks(mod: tvm.IRModule) -> list[str]:
    """Return the messages of the checks in a module, in order."""
    found: list[str] = []

    def note(check: tirx.AssertStmt) -> None:
        found.append("".join(str(part.value) for part in check.message_parts))

    def note_fault(call: Call) -> None:
        if isinstance(call.args[0], StringImm) and call.args[0].value == SIZE_FAULT:
            found.append(str(call.args[1].value))

    for func in mod.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func.body, [(tirx.AssertStmt, note), (Call, note_fault)])
    return found


def test_an_allocation_is_checked_once_and_first() -> None:
    before = planned(Square)
    ctx = context()
    after, modified = check_sizes(before, ctx)
    assert modified
    assert [text for text in checks(after) if "(n, n) of float32" in text] != []
    assert any("conditions on sizes" in what for _, what in ctx.log.fired)
    names = [b.value.op for block in after["main"].body.blocks for b in block.bindings]
    first = next(op for op in names if isinstance(op, tvm.ir.GlobalVar))
    assert first.name_hint.startswith("check_sizes")
    again, modified = check_sizes(after, context())
    assert not modified and again is after
    assert relax.analysis.well_formed(after) is not False
    np.testing.assert_array_equal(run(after, 3), run(before, 3))


def test_a_product_that_overflows_is_refused() -> None:
    after, _ = check_sizes(planned(Square), context())
    assert 4 * 6_000_000**2 > ADDRESS_SPACE
    fault = r"a shape \(n, n\) of float32 .*; n is 6000000 \(axis 0 of 'x'\) \(tensor '.*'\)"
    with pytest.raises(ValueError, match=fault):
        run(after, 6_000_000)


def test_a_stated_condition_becomes_a_check() -> None:
    after, _ = check_sizes(planned(Stated), context())
    assert "R.shape([T.Select" not in after["main"].script()
    assert run(after, 4).tolist() == [2.0] * 4
    fault = r"it does not hold that n % 2 == 0; n is 3 \(axis 0 of 'x'\) \(tensor 'even'\)"
    with pytest.raises(ValueError, match=fault):
        run(after, 3)


def test_static_sizes_are_not_checked() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(y)
    before = planned(builder.get())
    after, modified = check_sizes(before, context())
    assert not modified and after is before


def test_checks_of_indices_are_dropped_where_kernels_cannot_raise() -> None:
    builder = relax.BlockBuilder()
    i = relax.Var("i", relax.TensorType([3], "int64"))
    with builder.function("main", [i]):
        with builder.dataflow():
            found = builder.emit_te(lambda t: checked_indices(t, [5], "out of range"), i)
            y = builder.emit_output(relax.op.add(found, found))
        builder.emit_func_output(y)
    mod = builder.get()
    assert checks(mod) == ["out of range"]
    assert checks(without_index_checks(mod)) == []
    kept, modified = drop_index_checks(mod, context())  # a processor raises
    assert not modified and kept is mod
    plain = without_index_checks(Square)
    assert plain is Square
