"""Answer the cost models' questions by measurements on this machine (`compile(tune="quick")`).

Each distinct convolution and product of the graph is lowered and scheduled as it will be, which
asks questions (`tir_schedules.questions`); each question's few options are measured against each
other. Kernels of most arithmetic come first, since the time is limited. What the answers change is
how the same numbers are computed, or with Winograd's sums at most how they are rounded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.analysis.definitions import operator_name
from relax_passes.lower_operators import lower_operators
from relax_passes.lowering.rule import static_shape
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.schedule_kernels import schedule_kernel
from tir_schedules.questions import Question, record_questions

NAME = "tune_kernels"
# Multiply-adds below which a kernel is not worth the time of compiling its options.
_HOT = 200_000


@graph_pass(name=NAME, phase="lower")
def tune_kernels(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Measure a few schedules of each hot kernel, if the compilation is to be tuned."""
    session = ctx.tuning
    if session is None or ctx.machine.kind != "llvm":
        return mod, False
    answers: dict[Question, Any] = {}
    with session.running():
        for call, count in _hot_calls(mod):
            _answer_all(call, count, answers, ctx)
    if session.measured:
        session.store.save()
    ctx.machine = dataclasses.replace(ctx.machine, answers=frozenset(answers.items()))
    saved = sum(change["saved_seconds"] for change in session.changed)
    ctx.log.fire(
        NAME,
        f"{session.measured} choices measured in {session.spent:.1f} s, {session.from_store} known "
        f"from before, {session.left_out} left to the cost model; {len(session.changed)} changed, "
        f"{1e6 * saved:.0f} us less a run",
    )
    if session.store.fault:
        ctx.log.decline(NAME, "stored answers", session.store.fault)
    ctx.log.metrics["tuning"] = {
        "seconds": session.spent,
        "measured": session.measured,
        "from_store": session.from_store,
        "left_out": session.left_out,
        "changed": list(session.changed),
        "saved_seconds": saved,
    }
    return mod, False


def _answer_all(
    call: tvm.ir.Call, count: int, answers: dict[Question, Any], ctx: PassContext
) -> None:
    """Answer what the kernel of a call asks; an answer may lead to other questions."""
    session = ctx.tuning
    assert session is not None
    changed = True
    while changed:
        with record_questions() as asked:
            _kernel(call, answers, ctx)
        changed = False
        for question, options in asked.items():
            if changed or question in answers or len(options) == 1:
                continue

            def build(option: Any, question: Question = question) -> tirx.PrimFunc:
                return _kernel(call, {**answers, question: option}, ctx)

            answers[question] = session.answer(question, options, build, ctx.target, count)
            changed = answers[question] != options[0]


def _hot_calls(mod: tvm.IRModule) -> list[tuple[tvm.ir.Call, int]]:
    """Return distinct convolutions and products with how often they occur, most arithmetic first.

    Those of symbolic sizes are left out: how long they take depends on the sizes.
    """
    calls: dict[str, tvm.ir.Call] = {}
    counts: dict[str, int] = {}

    def visit(call: tvm.ir.Call) -> None:
        if _fmas(call) >= _HOT:
            key = f"{call.op.name} {[str(arg.ty) for arg in call.args]} {call.attrs}"
            calls.setdefault(key, call)
            counts[key] = counts.get(key, 0) + 1

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit), order="pre")
    order = sorted(calls, key=lambda key: -_fmas(calls[key]) * counts[key])
    return [(calls[key], counts[key]) for key in order]


def _fmas(call: tvm.ir.Call) -> int:
    """Return the multiply-adds of a convolution or product of static sizes, 0 of all else."""
    name = operator_name(call)
    if name not in ("nn.conv2d", "matmul"):
        return 0
    shapes = [static_shape(value) for value in (call, *call.args[:2])]
    result, data, weight = shapes
    if result is None or data is None or weight is None or len(result) == 0:
        return 0
    if name == "matmul":
        return math.prod(result) * data[-1]
    blocked = len(weight) == 6  # (Co/ob, Ci/ib, kh, kw, ib, ob)
    return math.prod(result) * math.prod(weight[1:5] if blocked else weight[1:])


def _kernel(call: tvm.ir.Call, answers: Mapping[Question, Any], ctx: PassContext) -> tirx.PrimFunc:
    """Return the scheduled kernel of a call alone, under some answers."""
    machine = dataclasses.replace(ctx.machine, answers=frozenset(answers.items()))
    alone = dataclasses.replace(ctx, machine=machine, log=PassLog(), tuning=None)
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{at}", arg.ty) if isinstance(arg, relax.Var) else arg
        for at, arg in enumerate(call.args)
    ]
    with builder.function("main", [param for param in params if isinstance(param, relax.Var)]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(tvm.ir.Call(call.op, params, call.attrs)))
        builder.emit_func_output(result)
    lowered, _ = lower_operators(builder.get(), alone)
    return schedule_kernel(lowered[_last_callee(lowered["main"])], alone)[0]


def _last_callee(main: relax.Function) -> tvm.ir.GlobalVar:
    """Return the kernel that makes the result; others before it pack weights."""
    callees: list[tvm.ir.GlobalVar] = []
    tvm_ffi.structural_walk(main.body, (tvm.ir.GlobalVar, callees.append), order="pre")
    return callees[-1]
