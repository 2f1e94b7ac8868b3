"""What must hold of sizes that are known only when a function runs, before memory depends on them.

Sizes are int64. A product of them may overflow, so what a tensor takes is compared in float64.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer, ConstIntBound

from relax_passes.analysis.size_bounds import SizeBounds
from relax_passes.memory.live_ranges import is_call_to

Size = Any  # a TIR expression of dtype int64

ALLOC_TENSOR = "relax.builtin.alloc_tensor"
CUT_TENSOR = "relax.memory.alloc_tensor"
# An attribute of `main`: what errors say of statements, by the names of their variables.
REASONS = "relaxc.size_reasons"
# User space of a 64-bit processor: no tensor is larger, and sizes below it never overflow a sum.
ADDRESS_SPACE = 1 << 47


@dataclass(frozen=True)
class Condition:
    """A condition on sizes.

    Attributes:
        holds: A TIR expression of type bool.
        reason: What is wrong where it does not hold.
        tensor: The value whose shape it is about.
        symbols: The sizes it reads.
    """

    holds: Any
    reason: str
    tensor: str
    symbols: frozenset[tirx.Var]

    def message(self, origins: Mapping[tirx.Var, str]) -> tuple[str, list[tirx.Var]]:
        """Return the text of the error, with a `{}` for each size, and these sizes.

        `relaxc.run_fault` reads the tensor's name from it.

        Args:
            origins: Where sizes come from (`size_origins`).
        """
        sizes = sorted(self.symbols, key=lambda size: str(size.name))
        shown = [f"{size.name} is {{}}" for size in sizes]
        for place, size in enumerate(sizes):
            if size in origins:
                shown[place] += f" ({_escaped(origins[size])})"
        given = f"; {', '.join(shown)}" if shown else ""
        return f"{_escaped(self.reason)}{given} (tensor '{_escaped(self.tensor)}')", sizes


def reasons_of(mod: tvm.IRModule) -> dict[str, str]:
    """Return what a frontend has errors say of conditions that it states, by name."""
    for var, func in mod.functions.items():
        if var.name_hint == "main" and func.attrs is not None:
            return {str(name): str(told) for name, told in (func.attrs.get(REASONS) or {}).items()}
    return {}


def is_statement(binding: relax.Binding) -> bool:
    """Tell whether a binding only states a condition c; the check takes its place.

    It is R.match_cast(s, R.Shape([1])) of a shape s = R.shape([Select(c, 1, 0)]).
    """
    if not isinstance(binding, relax.MatchCast):
        return False
    stated = _sizes(binding.ty) if isinstance(binding.ty, relax.ShapeType) else None
    sizes = _sizes(binding.value.ty)
    if stated is None or sizes is None or len(stated) != 1 or len(sizes) != 1:
        return False
    return isinstance(stated[0], tirx.IntImm) and isinstance(sizes[0], tirx.Select)


def promised_bounds(func: relax.Function) -> Iterator[Condition]:
    """Yield that no size of an input is above the bound that the plan of memory relies on."""
    for symbol, bound in SizeBounds(func).of_symbols.items():
        named = (p for p in func.params if symbol in relax.analysis.tir_vars_in_type(p.ty))
        reason = f"the size {symbol.name} is above its upper bound of {bound}"
        yield Condition(symbol <= bound, reason, next(named).name, frozenset([symbol]))


class ConditionFinder:
    """Finds the conditions of one function, binding by binding in the order they run."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """`reasons` are what errors say of statements, by name, where it is not the condition."""
        self._analyzer, self._reasons = Analyzer(), reasons
        self._stated: set[tuple[str, str]] = set()

    def declare(self, symbols: Sequence[tirx.Var]) -> None:
        """State that symbols are sizes: at least zero."""
        for symbol in symbols:
            self._analyzer.update(symbol, ConstIntBound(0, ConstIntBound.POS_INF))

    def of(self, binding: relax.Binding, fresh: frozenset[tirx.Var]) -> Iterator[Condition]:
        """Yield what must hold before `binding`, or after it where it defines symbols.

        Args:
            binding: Any binding of a function whose memory is planned.
            fresh: The symbols that it defines.
        """
        value, name = binding.value, binding.var.name
        if is_statement(binding):
            (stated,) = _sizes(value.ty) or ()
            shown = f"it does not hold that {_text(stated.condition)}"
            yield from self._new(stated.condition, self._reasons.get(name, shown), name)
        elif isinstance(binding, relax.MatchCast):
            have, want = _sizes(value.ty), _sizes(binding.ty)
            if have is not None and want is not None and len(have) == len(want):
                for left, right in zip(have, want, strict=True):
                    if not (isinstance(right, tirx.Var) and right in fresh):
                        yield from self._equal(left, right, name)
            elif isinstance(value.ty, relax.ShapeType):
                for symbol in sorted(fresh, key=lambda each: str(each.name)):
                    in_range = tirx.all(symbol >= 0, symbol <= ADDRESS_SPACE)
                    reason = f"the size {symbol.name} is negative or larger than any tensor"
                    yield Condition(in_range, reason, name, frozenset([symbol]))
        elif is_call_to(value, "relax.reshape"):
            yield from self._fits(_sizes(binding.var.ty) or (), str(binding.var.ty.dtype), name)
        elif is_call_to(value, "relax.memory.alloc_storage"):
            yield from self._fits(_sizes(value.args[0].ty) or (), "uint8", name)
        elif is_call_to(value, ALLOC_TENSOR) or is_call_to(value, CUT_TENSOR):
            shape = value.args[0] if is_call_to(value, ALLOC_TENSOR) else value.args[2]
            sizes = _sizes(shape.ty) or ()
            yield from self._fits(sizes, str(binding.var.ty.dtype), name)

    def _equal(self, have: Size, want: Size, name: str) -> Iterator[Condition]:
        if self._analyzer.can_prove_equal(have, want):
            return
        reason = f"a size is {_text(have)} and must be {_text(want)}"
        yield from self._new(have == want, reason, name)

    def _fits(self, sizes: Sequence[Size], dtype: str, name: str) -> Iterator[Condition]:
        if all(isinstance(size, tirx.IntImm) for size in sizes):
            return
        total: Any = tirx.const(float((tvm.DataType(dtype).bits + 7) // 8), "float64")
        at_least: list[Any] = []
        for size in sizes:
            total = total * _approximate(size)
            if self._analyzer.const_int_bound(size).min_value < 0:
                at_least.append(size >= 0)
        shown = ", ".join(_text(size) for size in sizes)
        limit = tirx.const(float(ADDRESS_SPACE), "float64")
        reason = f"a shape ({shown}) of {dtype} is negative or more than memory can hold"
        yield from self._new(tirx.all(total <= limit, *at_least), reason, name)

    def _new(self, holds: Any, reason: str, name: str) -> Iterator[Condition]:
        if not hasattr(holds, "ty"):  # `a == b` is an expression only once it is asked to be one
            holds = holds.asobject()
        symbols = frozenset(tirx.analysis.undefined_vars(tirx.Evaluate(holds), []))
        if (reason, str(holds)) in self._stated:
            return
        self._stated.add((reason, str(holds)))
        yield Condition(holds, reason, name, symbols)


def _sizes(ty: tvm.ir.Type) -> tuple[Size, ...] | None:
    """Return the sizes of a tensor or a shape, None if they are not known."""
    if isinstance(ty, relax.ShapeType):
        return None if ty.values is None else tuple(ty.values)
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        return tuple(ty.shape.values)
    return None


def _approximate(size: Size) -> Any:
    """Return a size as float64 expression that does not overflow where int64 would."""
    if isinstance(size, tirx.IntImm):
        return tirx.const(float(size.value), "float64")
    if isinstance(size, tirx.Add):
        return _approximate(size.a) + _approximate(size.b)
    if isinstance(size, tirx.Sub):
        return _approximate(size.a) - _approximate(size.b)
    if isinstance(size, tirx.Mul):
        return _approximate(size.a) * _approximate(size.b)
    if isinstance(size, tirx.Select):
        # TVM's integer sets, asked for the range of a shared subexpression, fail on a Select of
        # integers under a cast; a call to if_then_else they leave alone.
        chosen = _approximate(size.true_value), _approximate(size.false_value)
        return tirx.if_then_else(size.condition, *chosen)
    return size.astype("float64")


def _escaped(text: str) -> str:
    """Return a text as `str.format` gives it back."""
    return text.replace("{", "{{").replace("}", "}}")


def _text(expr: Any) -> str:
    """Return a size or a condition as a reader writes it."""
    numbers = re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(expr))
    return re.sub(r"\bT\.(?=\w+\()", "", numbers)
