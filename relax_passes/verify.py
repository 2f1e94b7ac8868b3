"""What holds at each phase boundary, checked: a broken pass is named at once, not three phases on.

always          well-formed Relax
after lower     only call_tir, views and bookkeeping: no operator is left to interpret
after schedule  a rule has scheduled every PrimFunc; none raises in a parallel loop
after memory    every allocation is explicit; no two live tensors share bytes
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call

from relax_passes.memory.verify_offsets import OverlapError
from relax_passes.memory.verify_plan import verify_plan
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
        "relax.concat",  # of parts that are written into it, until its memory is planned
        "relax.shape_of",
        "relax.size",
        "relax.tensor_to_shape",
        "relax.assert_op",
        "relax.null_value",
    }
)
_RUNTIME = ("relax.builtin.", "relax.memory.", "relax.vm.")
_PLANNED_AWAY = frozenset({"relax.call_tir", "relax.call_dps_packed", "relax.concat"})


class VerificationError(RuntimeError):
    """A pass broke the invariant of its phase; the text names the phase and the binding."""


def verify_pass(
    name: str,
    phase: str,
    before: tvm.IRModule,
    after: tvm.IRModule,
    modified: bool,
    ctx: PassContext,
) -> None:
    """Check what holds after each single pass, so that the one that broke it is named.

    Within a phase the invariants of the phase before hold; those of the phase itself are due only
    at its end.

    Args:
        name: The pass that has just run.
        phase: The phase it ran in, one of `pass_base.PHASES`.
        before: The module it was given.
        after: The module it returned.
        modified: Whether it says that the two differ.
        ctx: The context it ran in.

    Raises:
        VerificationError: If the module is ill-formed, an invariant is broken, or the pass changed
            the module and says that it did not.
    """
    if not modified and not (
        after.same_as(before) or tvm_ffi.structural_equal(before, after, map_free_vars=True)
    ):
        raise VerificationError(f"pass {name!r} changed the module and says that it did not")
    _verify(f"pass {name!r} of phase {phase!r} broke it", PHASES.index(phase) - 1, after)


def verify_import(mod: tvm.IRModule) -> None:
    """Check what a frontend returned, so that no pass is blamed for it.

    Raises:
        VerificationError: If the module is ill-formed.
    """
    _verify("after import", -1, mod)


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
    if phase not in PHASES:
        raise ValueError(f"unknown phase {phase!r}, expected one of {PHASES}")
    _verify(f"after {phase}", PHASES.index(phase), mod)


def _verify(where: str, reached: int, mod: tvm.IRModule) -> None:
    """Check the invariants of the phases up to number `reached`; -1 means well-formedness alone."""
    try:
        relax.analysis.well_formed(mod)
    except (ValueError, TypeError, RuntimeError) as fault:
        lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
        message = lines[-1] if lines else repr(fault)
        raise VerificationError(f"{where}: ill-formed Relax: {message}") from fault
    for name, func in _relax_functions(mod):
        if reached >= PHASES.index("lower"):
            _check_lowered(where, name, func)
        if reached >= PHASES.index("memory"):
            _check_planned(where, name, func, mod)
    if reached >= PHASES.index("schedule"):
        _check_scheduled(where, mod)


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


def _check_lowered(where: str, name: str, func: relax.Function) -> None:
    for binding in bindings_of(func.body):
        op = _operator(binding)
        if op and op not in LOWERED and not op.startswith(_RUNTIME):
            raise VerificationError(f"{where}: {name}: {binding.var.name} still calls {op}")


def _check_scheduled(where: str, mod: tvm.IRModule) -> None:
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc) and not (func.attrs and SCHEDULED in func.attrs):
            raise VerificationError(f"{where}: kernel {var.name_hint} is not scheduled")
        if isinstance(func, tirx.PrimFunc) and _raises_in_parallel(func):
            # The runtime loses an error of a worker thread now and then.
            raise VerificationError(
                f"{where}: kernel {var.name_hint} checks something in a parallel loop"
            )


def _raises_in_parallel(func: tirx.PrimFunc) -> bool:
    found: list[tirx.AssertStmt] = []

    def visit(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            tvm_ffi.structural_walk(loop.body, (tirx.AssertStmt, found.append), order="pre")

    tvm_ffi.structural_walk(func.body, (tirx.For, visit), order="pre")
    return bool(found)


def _check_planned(where: str, name: str, func: relax.Function, mod: tvm.IRModule) -> None:
    # Branches of an If allocate from the run-time pool, when the branch is taken.
    for binding in (b for block in func.body.blocks for b in block.bindings):
        op = _operator(binding)
        if op in _PLANNED_AWAY:
            raise VerificationError(
                f"{where}: {name}: {binding.var.name} still allocates through {op}"
            )
    try:
        verify_plan(func, mod)
    except OverlapError as fault:
        raise VerificationError(f"{where}: {name}: {fault}") from fault


def _operator(binding: relax.Binding) -> str:
    """Return the name of the operator a binding calls, "" if it calls none."""
    value = binding.value
    if isinstance(value, Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""
