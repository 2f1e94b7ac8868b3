"""What holds at each phase boundary, checked: a broken pass is named at once, not three phases on.

always          well-formed Relax
after lower     only call_tir, views and bookkeeping: no operator is left to interpret
after schedule  a rule has scheduled every PrimFunc
after memory    every allocation is explicit; no two live tensors share bytes
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from relax_passes.memory.verify_plan import OverlapError, verify_plan
from relax_passes.pass_base import PHASES, PassContext

SCHEDULED = "tirx.is_scheduled"
# Operators that are no computation: calls of kernels, views, shapes, and the VM's bookkeeping.
LOWERED = frozenset(
    {
        "relax.call_tir",
        "relax.call_dps_packed",
        "relax.call_pure_packed",
        "relax.call_builtin_with_ctx",
        "relax.reshape",
        "relax.shape_of",
        "relax.size",
        "relax.tensor_to_shape",
        "relax.shape_to_tensor",
        "relax.assert_op",
        "relax.null_value",
    }
)
_RUNTIME = ("relax.builtin.", "relax.memory.", "relax.vm.")
_PLANNED_AWAY = frozenset({"relax.call_tir", "relax.call_dps_packed"})


class VerificationError(RuntimeError):
    """A pass broke the invariant of its phase; the text names the phase and the binding."""


def verify_phase(phase: str, mod: tvm.IRModule, ctx: PassContext) -> None:
    """Check the invariants that hold from `phase` on.

    Args:
        phase: The phase that has just run, one of `pass_base.PHASES`.
        mod: The module it left.
        ctx: The context it ran in.

    Raises:
        ValueError: If the phase is unknown.
        VerificationError: If an invariant is broken.
    """
    reached = PHASES.index(phase) if phase in PHASES else None
    if reached is None:
        raise ValueError(f"unknown phase {phase!r}, expected one of {PHASES}")
    try:
        relax.analysis.well_formed(mod)
    except (ValueError, TypeError, RuntimeError) as fault:
        lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
        message = lines[-1] if lines else repr(fault)
        raise VerificationError(f"after {phase}: ill-formed Relax: {message}") from fault
    for name, func in _relax_functions(mod):
        if reached >= PHASES.index("lower"):
            _check_lowered(phase, name, func)
        if reached >= PHASES.index("memory"):
            _check_planned(phase, name, func)
    if reached >= PHASES.index("schedule"):
        _check_scheduled(phase, mod)


def _relax_functions(mod: tvm.IRModule) -> Iterator[tuple[str, relax.Function]]:
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            yield var.name_hint, func


def bindings_of(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    """Yield the bindings of a function body in order, those of branches included."""
    for block in body.blocks:
        for binding in block.bindings:
            yield binding
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_of(value.true_branch)
                yield from bindings_of(value.false_branch)


def _check_lowered(phase: str, name: str, func: relax.Function) -> None:
    for binding in bindings_of(func.body):
        op = _operator(binding)
        if op and op not in LOWERED and not op.startswith(_RUNTIME):
            raise VerificationError(f"after {phase}: {name}: {binding.var.name} still calls {op}")


def _check_scheduled(phase: str, mod: tvm.IRModule) -> None:
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and not (func.attrs and SCHEDULED in func.attrs):
            raise VerificationError(f"after {phase}: kernel {var.name_hint} is not scheduled")


def _check_planned(phase: str, name: str, func: relax.Function) -> None:
    # Branches of an If allocate from the run-time pool, when the branch is taken.
    for binding in (b for block in func.body.blocks for b in block.bindings):
        op = _operator(binding)
        if op in _PLANNED_AWAY:
            raise VerificationError(
                f"after {phase}: {name}: {binding.var.name} still allocates through {op}"
            )
    try:
        verify_plan(func)
    except OverlapError as fault:
        raise VerificationError(f"after {phase}: {name}: {fault}") from fault


def _operator(binding: relax.Binding) -> str:
    """Return the name of the operator a binding calls, "" if it calls none."""
    value = binding.value
    if isinstance(value, Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""
