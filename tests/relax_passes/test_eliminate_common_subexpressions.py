"""Equal expressions are shared; expressions that differ only in constants are not."""

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from relax_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from relax_passes.eliminate_dead_code import eliminate_dead_code
from relax_passes.pass_base import PassContext
from tests.plain_build import build_plainly
from tir_schedules import Machine, host_target

X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
Emit = Callable[[relax.Expr], relax.Var]


def _module(body: Callable[[Emit, relax.Var], relax.Expr]) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(body(bb.emit, x))
        bb.emit_func_output(out)
    return bb.get()


def _context() -> PassContext:
    target = host_target(1)
    return PassContext(target, Machine.from_target(target))


def _bindings(mod: tvm.IRModule) -> int:
    return sum(len(block.bindings) for block in mod["main"].body.blocks)


def _run(mod: tvm.IRModule) -> np.ndarray:
    vm = relax.VirtualMachine(build_plainly(mod), tvm.cpu())
    return vm["main"](tvm.runtime.tensor(X)).numpy()


def _filled(value: float) -> relax.Expr:
    return relax.const(np.full(8, value, "float32"))


def test_equal_expressions_are_shared_transitively() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        first = emit(relax.op.exp(emit(relax.op.add(x, _filled(1)))))
        second = emit(relax.op.exp(emit(relax.op.add(x, _filled(1)))))
        return relax.op.multiply(first, second)

    mod, ctx = _module(body), _context()
    shared, modified = eliminate_common_subexpressions(mod, ctx)
    assert modified and _bindings(shared) == _bindings(mod) - 2
    np.testing.assert_array_equal(_run(shared), _run(mod))
    assert relax.analysis.check_well_formed(shared)
    assert not eliminate_common_subexpressions(shared, ctx)[1]
    assert ctx.log.fired


def test_weights_of_one_shape_and_two_values_stay_two() -> None:
    weights = [relax.const(np.full((8, 8), v, "float32")) for v in (1.0, 2.0)]

    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        left, right = (emit(relax.op.matmul(x, w)) for w in weights)
        return relax.op.add(left, right)

    assert not eliminate_common_subexpressions(_module(body), _context())[1]


def test_attributes_and_operand_order_matter() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        row, col = emit(relax.op.sum(x, [0], True)), emit(relax.op.sum(x, [1], True))
        left, right = emit(relax.op.subtract(x, row)), emit(relax.op.subtract(row, x))
        return relax.op.add(emit(relax.op.add(left, right)), col)

    assert not eliminate_common_subexpressions(_module(body), _context())[1]


def test_dead_code_goes_and_live_code_stays() -> None:
    def body(emit: Emit, x: relax.Var) -> relax.Expr:
        emit(relax.op.exp(emit(relax.op.add(x, _filled(1)))))
        return relax.op.add(x, _filled(2))

    mod, ctx = _module(body), _context()
    cleaned, modified = eliminate_dead_code(mod, ctx)
    assert modified and _bindings(cleaned) == 1
    np.testing.assert_array_equal(_run(cleaned), X + 2)
    assert not eliminate_dead_code(cleaned, ctx)[1]
