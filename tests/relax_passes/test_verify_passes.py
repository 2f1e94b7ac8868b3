"""Debug mode: the verifier runs between passes and names the one that broke the module."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

import relaxc
from relax_passes.fuse_operators import fuse_operators
from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pipeline import Pipeline, default_pipeline
from relax_passes.verify import VerificationError
from tests.relax_passes.pass_checks import context, module


def planted(name: str, phase: str, change: object) -> GraphPass:
    """Return a pass that is not registered."""
    return GraphPass(name, phase, change, "a planted bug")  # type: ignore[arg-type]


def forget_a_binding(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Drop the first binding, whose variable is read later."""
    main = mod["main"]
    (block,) = main.body.blocks
    body = relax.SeqExpr([relax.DataflowBlock(block.bindings[1:])], main.body.body)
    new = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.IRModule({mod.get_global_var("main"): new}), True


def raise_an_operator(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Return a module of graph operators where only kernels may be."""
    return exp_tanh(), True


def lie(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Change the module and deny it."""
    return forget_a_binding(mod, ctx)[0], False


def exp_tanh() -> tvm.IRModule:
    return module((4, 4), lambda bb, x: relax.op.tanh(bb.emit(relax.op.exp(x))))


def with_bug(bug: GraphPass, phase: str, *rest: GraphPass) -> Pipeline:
    return default_pipeline().with_phase(phase, bug, *rest)


def run(pipeline: Pipeline, *, debug: bool) -> None:
    ctx = context()
    ctx.debug = debug
    pipeline.run(exp_tanh(), ctx)


def test_an_ill_formed_module_is_blamed_on_the_pass() -> None:
    pipeline = with_bug(planted("forget_a_binding", "raise", forget_a_binding), "raise")
    with pytest.raises(VerificationError, match="pass 'forget_a_binding' of phase 'raise'"):
        run(pipeline, debug=True)
    with pytest.raises(VerificationError, match="^after raise"):
        run(pipeline, debug=False)


def test_a_broken_phase_invariant_is_blamed_on_the_pass() -> None:
    bug = planted("raise_an_operator", "fuse", raise_an_operator)
    with pytest.raises(VerificationError, match="'raise_an_operator' of phase 'fuse'.*relax.exp"):
        run(with_bug(bug, "fuse", fuse_operators), debug=True)


def test_a_pass_may_not_deny_a_change() -> None:
    with pytest.raises(VerificationError, match="'lie' changed the module and says"):
        run(with_bug(planted("lie", "rewrite", lie), "rewrite"), debug=True)


def test_an_ill_formed_import_is_blamed_on_no_pass() -> None:
    ctx = context()
    ctx.debug = True
    broken, _ = forget_a_binding(exp_tanh(), ctx)
    with pytest.raises(VerificationError, match="^after import: ill-formed"):
        default_pipeline().run(broken, ctx)


def test_the_pipelines_own_passes_hold_up() -> None:
    run(default_pipeline(), debug=True)


def test_a_compile_error_names_phase_and_pass() -> None:
    def fail(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
        raise KeyError("lost")

    pipeline = with_bug(planted("fail", "rewrite", fail), "rewrite")
    with pytest.raises(relaxc.CompileError, match="phase 'rewrite' failed in pass 'fail': .*lost"):
        relaxc.compile(exp_tanh(), passes=pipeline)
