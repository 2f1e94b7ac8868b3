"""Give each dimension of a kernel a plain name: (w - 1) // 4 + 1 becomes n.

A kernel that takes a width computed from the model's sizes, and w beside it, becomes one that reads
its width n off its operands. The kernels of layers that differ only in where their sizes come from
are then equal and are compiled once, and no pass of the code generator has to see through
((w - 1) // 4 * 6 + 12) // 7 to know a loop's bounds.

From n = (w + a) // b + c follows w = b * (n - c) - a + r for some r of 0 ... b - 1. A kernel in
which r cancels out depends on n alone: it computes the same for each w that gives this n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator
from tvm.sym import Analyzer

from relax_passes.analysis.size_relation import SizeRelation, size_relation
from relax_passes.name_conversions import handed_over, name_conversions
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CalleeRewriter, rewrite_callers
from tir_schedules.variables import uses

NAME = "name_sizes"

_ARITHMETIC = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Min,
    tirx.Max,
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE),
)


# What to look at, and what becomes of it.
_Rule = tuple[type | tuple[type, ...], Callable[[tirx.Expr], tirx.Expr]]


@dataclass(frozen=True)
class _NamedKernel:
    """A kernel with plain sizes.

    Attributes:
        func: It.
        former: The one that it takes the place of.
        added: What follows the former one's arguments.
        dropped: The numbers of those that it no longer has.
    """

    func: tirx.PrimFunc
    former: tirx.PrimFunc
    added: tuple[tirx.Expr, ...]
    dropped: frozenset[int]


@graph_pass(name=NAME, phase="schedule")
def name_sizes(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Let kernels read computed sizes off their operands, so that equal kernels look equal."""
    kernels: dict[tvm.ir.GlobalVar, _NamedKernel] = {}
    inputs = _numbers_of_inputs(mod)
    for var, func in mod.functions.items():
        if not isinstance(func, tirx.PrimFunc) or var not in inputs:
            continue
        converted = name_conversions(func, inputs[var])
        plain, gone = converted.func, set()
        for at, param in enumerate(converted.func.params):
            if hasattr(param, "shape"):
                continue
            named = name_size(plain, param)
            if isinstance(named, tirx.PrimFunc):
                plain = named
                gone.add(at)
            else:
                ctx.log.decline(NAME, f"{param.name} of {var.name_hint}", named)
        plain = name_results(plain)
        if plain is not func:
            kernels[var] = _NamedKernel(plain, func, converted.added, frozenset(gone))
    if not kernels:
        return mod, False
    ctx.log.fire(NAME, f"{len(kernels)} kernels read their sizes off their operands")
    return rewrite_callers(_CallNamedKernels(mod, kernels), mod), True


def _numbers_of_inputs(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, int]:
    """Return how many arguments each kernel of a module is called with."""
    found: dict[tvm.ir.GlobalVar, int] = {}

    def look(value: relax.Expr) -> None:
        if isinstance(value, tvm.ir.Call) and value.op == _CALL_TIR:
            found[value.args[0]] = len(value.args[1].fields)

    for _, func in mod.functions_items():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, look)
    return found


def name_results(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Name the dimensions of which TVM does not know that they are no less than 0.

    A window of 3 has (w - 3) // 2 + 1 places on an axis of w by steps of 2. TVM then writes a case
    for w = 0, in which the number of tiles is 0, and refuses its own division by it.
    """
    for size in _read_sizes(func):
        for dim in _dims(func):
            relation = size_relation(dim, size)
            if relation is not None and relation.divisor > 1 and relation.of(0) < 0:
                quotient = tirx.Var(f"{size.name}_quotient", size.ty.dtype)
                plain = _name_quotients(func, size, quotient, relation)
                name = tirx.Var(f"{size.name}_places", size.ty.dtype)
                plain = _rewrite(plain, _in_terms_of(name, quotient, relation), Analyzer())
                func = func if uses(plain, quotient) else plain
    return func


def _read_sizes(func: tirx.PrimFunc) -> list[tirx.Var]:
    """Return the sizes that are a dimension of a tensor, each once."""
    return list(dict.fromkeys(dim for dim in _dims(func) if isinstance(dim, tirx.Var)))


def _dims(func: tirx.PrimFunc) -> list[tirx.Expr]:
    return [dim for param in func.params if hasattr(param, "shape") for dim in param.shape]


def name_size(func: tirx.PrimFunc, size: tirx.Var) -> tirx.PrimFunc | str:
    """Replace the parameter `size` by the name of a dimension that follows from it.

    Returns:
        The function without the parameter, or why it needs it.
    """
    params = [param for param in func.params if not param.same_as(size)]
    plain = tirx.PrimFunc(params, func.body, func.ret_type, attrs=func.attrs)
    if not uses(plain, size):
        return plain
    relation = _relation_of(func, size)
    if relation is None:
        return "no dimension is a quotient of it"
    quotient = tirx.Var(f"{size.name}_quotient", size.ty.dtype)
    plain = _name_quotients(plain, size, quotient, relation)
    if uses(plain, size):
        rest = tirx.Var(f"{size.name}_rest", size.ty.dtype)
        analyzer = Analyzer()
        analyzer.bind(rest, tvm.ir.Range(0, relation.divisor))
        exact = quotient * relation.divisor - relation.shift + rest
        plain = _rewrite(plain, (tirx.Var, lambda v: exact if v.same_as(size) else v), analyzer)
        if uses(plain, rest):
            return "it needs more of it than its dimensions tell"
    name = tirx.Var(size.name, size.ty.dtype)
    plain = _rewrite(plain, _in_terms_of(name, quotient, relation), Analyzer())
    return "some size is no multiple of a dimension" if uses(plain, quotient) else plain


def _relation_of(func: tirx.PrimFunc, size: tirx.Var) -> SizeRelation | None:
    """Return the relation with the least divisor and factor, which the others follow from."""
    found = [relation for dim in _dims(func) if (relation := size_relation(dim, size)) is not None]
    return min(found, key=lambda r: (r.divisor, abs(r.factor)), default=None)


def _name_quotients(
    func: tirx.PrimFunc, size: tirx.Var, quotient: tirx.Var, relation: SizeRelation
) -> tirx.PrimFunc:
    """Write each division of the size that the quotient gives as a division of the quotient.

    With q = (w + a) // b, (w + a + b * m) // (b * k) is (q + m) // k, which TVM's simplifier, given
    w = b * q - a + r, does not always find.
    """

    def visit(division: tirx.FloorDiv) -> tirx.Expr:
        found = size_relation(division, size)
        if found is None or found.divisor % relation.divisor:
            return division
        moved = found.shift - relation.shift
        if moved % relation.divisor:
            return division
        times = found.divisor // relation.divisor
        moved_quotient = quotient + moved // relation.divisor if moved else quotient
        return tirx.floordiv(moved_quotient, times) if times > 1 else moved_quotient

    return tvm_ffi.structural_map(func, (tirx.FloorDiv, visit))


def _in_terms_of(name: tirx.Var, quotient: tirx.Var, relation: SizeRelation) -> _Rule:
    """Return the rule that writes the quotient, or its multiples, in terms of the dimension."""
    if relation.factor == 1:
        return tirx.Var, lambda var: name - relation.offset if var.same_as(quotient) else var

    def visit(value: tirx.Expr) -> tirx.Expr:
        found = size_relation(value, quotient)
        if found is None or found.divisor > 1 or found.factor % relation.factor:
            return value
        times = found.factor // relation.factor
        return (name - relation.offset) * times + found.offset

    return (tirx.Add, tirx.Sub, tirx.Mul), visit


def _rewrite(func: tirx.PrimFunc, rule: _Rule, analyzer: Analyzer) -> tirx.PrimFunc:
    """Apply a rule to the function's expressions, and simplify what comes of it."""
    kinds, visit = rule

    def simplify(value: tirx.Expr) -> tirx.Expr:
        return analyzer.simplify(visit(value) if isinstance(value, kinds) else value)

    return tvm_ffi.structural_map(func, [(_ARITHMETIC, simplify), (kinds, visit)])


@mutator
class _CallNamedKernels(CalleeRewriter):
    """Calls each kernel without the arguments that it no longer needs."""

    def __init__(self, mod: tvm.IRModule, kernels: Mapping[tvm.ir.GlobalVar, _NamedKernel]) -> None:
        super().__init__(mod, {var: kernel.func for var, kernel in kernels.items()})
        self.kernels = kernels

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Return the call of a kernel with the arguments that it takes now."""
        if call.op != _CALL_TIR or call.args[0] not in self.callees:
            return None
        old, args, *rest = call.args
        callee, kernel = self.callees[old], self.kernels[old]
        given = [*args.fields, *handed_over(kernel.added, kernel.former, call)]
        fields = [arg for at, arg in enumerate(given) if at not in kernel.dropped]
        return relax.Call(call.op, [callee, relax.Tuple(fields), *rest], call.attrs, call.ty_args)


_CALL_TIR = tvm.ir.Op.get("relax.call_tir")
