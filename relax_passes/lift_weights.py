"""Take large constants out of the graphs: they become arguments, to be kept beside the code.

    main(x) = f(x, constant)   ->   main(x, weight) = f(x, weight)

What stays a constant lies within the executable, which TVM reads by copying: the bytes of the
library, those of the executable, then each tensor. An argument may lie in the file itself, mapped
(`relaxc.stored_weights`). A function that calls another one, a branch or the body of a loop, takes
what that one needs and hands it on. Equal weights, as versions for buckets have them, are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.analysis.tensor_bytes import bytes_of
from relax_passes.constant_values import has_numpy_type
from relax_passes.eliminate_common_subexpressions import ConstantNumbers

_LEAST_BYTES = 4096  # a page: smaller constants are not worth an argument of each call


@dataclass
class LiftedWeights:
    """The large constants of a module, and which functions take them.

    Attributes:
        constants: Each once, in the order in which `main` reads them.
        takes: The numbers of the constants that follow the arguments of a public function, by its
            name; functions that take none are left out.
    """

    constants: list[tvm.ir.GenericConst] = field(default_factory=list)
    takes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def lift(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return a module whose functions take their large constants as arguments.

        Args:
            mod: A module whose functions only call each other, ready for the virtual machine but
                for their symbols: it no longer checks the types of arguments.
        """
        graphs = {v: f for v, f in mod.functions.items() if isinstance(f, relax.Function)}
        own = self._number(graphs)
        needs = _needs(graphs, {var: set(numbers.values()) for var, numbers in own.items()})
        functions = dict(mod.functions)
        for var, func in graphs.items():
            functions[var] = self._with_weights(func, own[var], needs, needs[var])
            if needs[var] and func.attrs and "global_symbol" in func.attrs:
                self.takes[var.name_hint] = tuple(needs[var])
        return tvm.IRModule(functions, attrs=mod.attrs)

    def _number(
        self, graphs: dict[tvm.ir.GlobalVar, relax.Function]
    ) -> dict[tvm.ir.GlobalVar, dict[tvm.ir.GenericConst, int]]:
        """Return the numbers of the constants of each function, those of `main` first."""
        numbers, equal = dict[int, int](), ConstantNumbers()
        own: dict[tvm.ir.GlobalVar, dict[tvm.ir.GenericConst, int]] = {}
        for var in sorted(graphs, key=lambda var: (var.name_hint != "main", var.name_hint)):
            own[var] = {}
            for constant in _large_constants(graphs[var]):
                number = numbers.setdefault(equal.number(constant), len(self.constants))
                if number == len(self.constants):
                    self.constants.append(constant)
                own[var][constant] = number
        return own

    def _with_weights(
        self,
        func: relax.Function,
        own: dict[tvm.ir.GenericConst, int],
        needs: dict[tvm.ir.GlobalVar, list[int]],
        needed: list[int],
    ) -> relax.Function:
        """Return a function that takes what it needs after its other arguments."""
        if not needed:
            return func
        params = {
            number: relax.Var(f"weight{number}", self.constants[number].ty) for number in needed
        }

        def call(node: tvm.ir.Call) -> tvm.ir.Call:
            more = [params[number] for number in needs.get(node.op, ())]
            if not more:
                return node
            return relax.Call(node.op, [*node.args, *more], node.attrs, node.ty_args)

        def constant(node: tvm.ir.GenericConst) -> relax.Expr:
            return params[own[node]] if node in own else node

        body = tvm_ffi.structural_map(
            func.body, [(tvm.ir.GenericConst, constant), (tvm.ir.Call, call)]
        )
        arguments = [*func.params, *params.values()]
        return relax.Function(arguments, body, func.ret_ty, func.is_pure, func.attrs)


def _large_constants(func: relax.Function) -> list[tvm.ir.GenericConst]:
    """Return the constants to lift, in the order of the function's bindings."""
    found: list[tvm.ir.GenericConst] = []
    tvm_ffi.structural_walk(func.body, (tvm.ir.GenericConst, found.append), order="pre")
    return [c for c in found if has_numpy_type(c) and bytes_of(c) >= _LEAST_BYTES]


def _needs(
    graphs: dict[tvm.ir.GlobalVar, relax.Function], own: dict[tvm.ir.GlobalVar, set[int]]
) -> dict[tvm.ir.GlobalVar, list[int]]:
    """Return what each function reads, or those that it calls, in ascending order."""
    needs = {var: set(numbers) for var, numbers in own.items()}
    calls = {var: _callees(func) & set(graphs) for var, func in graphs.items()}
    while any(not needs[callee] <= needs[var] for var in graphs for callee in calls[var]):
        for var in graphs:
            needs[var].update(*(needs[callee] for callee in calls[var]))
    return {var: sorted(numbers) for var, numbers in needs.items()}


def _callees(func: relax.Function) -> set[tvm.ir.GlobalVar]:
    found: list[tvm.ir.GlobalVar] = []
    tvm_ffi.structural_walk(func.body, (tvm.ir.GlobalVar, found.append), order="pre")
    return set(found)
