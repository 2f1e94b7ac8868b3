"""Make one PrimFunc of each fused group, and the call that takes the group's place.

TVM's FuseTIR does the work, in a module of its own: there each group is a function that a caller
with the group's operands calls, and the caller afterwards holds the call to be taken over. FuseTIR
never sees the model's functions, because it renames the sizes in them: after a `match_cast` which
states that a size n equals a known size m, it writes m for n in some types and not in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax import analysis as relax_analysis


@dataclass(frozen=True)
class FusedGroup:
    """A group on its way to a kernel: who calls it, with which operands, for which variables."""

    caller: tvm.ir.GlobalVar
    operands: tuple[relax.Expr, ...]
    results: tuple[relax.Var, ...]


class FusedKernels:
    """The kernels of a module's groups: add all, then `finish`, then take the bindings."""

    def __init__(self, mod: tvm.IRModule) -> None:
        functions = {
            var: func for var, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)
        }
        self._builder = relax.BlockBuilder(tvm.IRModule(functions))
        self._groups = 0
        self._fused: tvm.IRModule | None = None

    def add(
        self, members: Sequence[relax.VarBinding], results: Sequence[relax.Var] = ()
    ) -> FusedGroup | None:
        """Take call_tir bindings, in order; None if a size cannot be handed over.

        The kernel has the result of the last one, or the tensors `results`.
        """
        if any(_calls_in_sizes(member) for member in members):
            return None
        inner = {member.var for member in members}
        read = dict.fromkeys(
            arg for member in members for arg in member.value.args[1].fields if arg not in inner
        )
        operands = [arg for arg in read if not _is_size(arg)]
        local: dict[relax.Expr, relax.Expr] = {
            arg: relax.Var(f"p{i}", arg.ty) for i, arg in enumerate(operands)
        }
        params = list(local.values())
        definable = {v for p in params for v in relax_analysis.definable_tir_vars_in_type(p.ty)}
        # Sizes that no operand's shape gives away are handed over as a shape, which defines them.
        sizes = [arg for arg in read if _is_size(arg) and arg not in definable]
        if sizes:
            params.append(relax.Var("sizes", relax.ShapeType(sizes)))
            operands.append(relax.ShapeExpr(sizes))
            definable.update(sizes)
        if any(v not in definable for member in members for v in needed_sizes(member)):
            return None

        name = "_".join(m.value.args[0].name_hint.rstrip("0123456789_") for m in members)[:80]
        builder = self._builder
        called: set[tvm.ir.GlobalVar] = set()
        with builder.function(name, params, attrs={"Primitive": True}, private=True):
            with builder.dataflow():
                for member in members:
                    callee, args, *symbols = member.value.args
                    if callee in called and needed_sizes(member):
                        callee = self._copy(callee, len(called))
                    called.add(callee)
                    args = relax.Tuple([local.get(arg, arg) for arg in args.fields])
                    value = member.value
                    call = relax.Call(
                        value.op, [callee, args, *symbols], value.attrs, value.ty_args
                    )
                    local[member.var] = builder.emit(call)
                results = tuple(results) or (members[-1].var,)
                made = [local[var] for var in results]
                output = builder.emit_output(relax.Tuple(made) if made[1:] else made[0])
            kernel = builder.emit_func_output(output)
        handed = [relax.Var(param.name, param.ty) for param in params]
        self._groups += 1
        with builder.function(f"call_group_{self._groups}", handed):
            with builder.dataflow():
                result = builder.emit_output(relax.Call(kernel, handed))
            caller = builder.emit_func_output(result)
        return FusedGroup(caller, tuple(operands), results)

    def finish(self) -> None:
        """Make the kernels; nothing can be added afterwards."""
        self._fused = relax.transform.FuseTIR()(self._builder.finalize())

    def bindings(self, group: FusedGroup, builder: relax.BlockBuilder) -> list[relax.VarBinding]:
        """Return what computes the group's results; its kernel is put into `builder`."""
        assert self._fused is not None
        caller = self._fused[group.caller]
        call = caller.body.blocks[0].bindings[0].value
        kernel, args, *symbols = call.args
        given = dict(zip(caller.params, group.operands, strict=True))
        placed = builder.add_func(self._fused[kernel], kernel.name_hint)
        operands = relax.Tuple([given.get(arg, arg) for arg in args.fields])
        single = len(group.results) == 1
        types = [var.ty for var in group.results]
        ty = types[0] if single else relax.TupleType(types)
        value = relax.Call(call.op, [placed, operands, *symbols], call.attrs, [ty], call.span)
        if single:
            return [relax.VarBinding(group.results[0], builder.normalize(value))]
        together = relax.DataflowVar("_and_".join(var.name for var in group.results), ty)
        parts = [
            relax.VarBinding(var, builder.normalize(relax.TupleGetItem(together, at)))
            for at, var in enumerate(group.results)
        ]
        return [relax.VarBinding(together, builder.normalize(value)), *parts]

    def _copy(self, callee: tvm.ir.GlobalVar, number: int) -> tvm.ir.GlobalVar:
        """Return a function that computes as `callee` does, with variables of its own.

        FuseTIR gives each size of a PrimFunc one meaning in the fused kernel; two calls of the same
        PrimFunc may need two, such as a transpose and the transpose back. The builder takes equal
        functions for one, hence the number.
        """
        func = s_tir.renew_defs(self._builder.get()[callee]).with_attr("call_number", number)
        return self._builder.add_func(func, callee.name_hint)


def _is_size(arg: relax.Expr) -> bool:
    """Tell whether an argument is a scalar of the shape arithmetic, not a tensor."""
    return isinstance(arg, tirx.Var) and isinstance(arg.ty, tvm.ir.PrimType)


def _calls_in_sizes(member: relax.VarBinding) -> bool:
    """Tell whether a size is computed by an intrinsic, such as if_then_else or floor.

    FuseTIR visits the sizes in the types of a group and takes an intrinsic there for an operator.
    """
    found: list[tvm.ir.Call] = []
    tvm_ffi.structural_walk(member.var.ty, (tvm.ir.Call, found.append), order="pre")
    return bool(found)


def needed_sizes(member: relax.VarBinding) -> list[tirx.Var]:
    """Return the symbolic sizes a call_tir needs: in its type and as explicit arguments."""
    explicit = member.value.args[2:]
    used = [v for e in explicit for v in relax_analysis.tir_vars_in_type(e.ty)]
    return [*relax_analysis.tir_vars_in_type(member.var.ty), *used]
