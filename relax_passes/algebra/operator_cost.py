"""What a graph operator costs: arithmetic, and bytes read and written, before any fusion.

The rules compare what they remove with what they add. A rule is accepted only if the sum is lower,
which is also why rewriting ends: no expression can become cheaper for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from relax_passes.lowering.rule import dtype_of

# One byte to or from the cache takes a core about as long as this many vectorized additions.
_BYTE_IN_FLOPS = 4
# Additions that take as long as one of these, vectorized on a current x86 core.
_FLOPS = {
    **dict.fromkeys("divide sqrt".split(), 4),
    "rsqrt": 5,
    **dict.fromkeys("exp log tanh sigmoid erf sin cos nn.silu".split(), 16),
    **dict.fromkeys("tan sinh cosh asin acos atan nn.softplus nn.gelu".split(), 24),
    **dict.fromkeys("nn.softmax nn.log_softmax".split(), 20),
    "power": 400,  # a call of libm for each element
    **dict.fromkeys("floor_divide floor_mod mod".split(), 16),
}
_REDUCTIONS = frozenset("sum mean max min prod".split())
_COPIES = frozenset(
    """permute_dims strided_slice concat split nn.pad broadcast_to take flip repeat tile
    collapse_sum_to""".split()
)
_VIEWS = frozenset("reshape flatten squeeze expand_dims".split())
# A symbolic size counts as the sum of a small one and a larger one.
_SIZES = (1, 64)


@dataclass(frozen=True)
class Cost:
    """Additions or their like, bytes moved, and calls; symbolic sizes summed over `_SIZES`."""

    flops: int = 0
    bytes: int = 0
    calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.calls + other.calls)

    @property
    def total(self) -> int:
        """Return one number that falls when a rewrite pays."""
        return self.flops + _BYTE_IN_FLOPS * self.bytes + self.calls

    def __lt__(self, other: Cost) -> bool:
        return self.total < other.total


class UnknownCost(Exception):
    """A value without a known shape."""


def operator_cost(value: relax.Expr) -> Cost:
    """Return what a bound value costs; names, tuples and their elements cost nothing.

    Raises:
        UnknownCost: If a shape is not known.
    """
    if not isinstance(value, tvm.ir.Call):
        return Cost()
    name = str(getattr(value.op, "name", "")).removeprefix("relax.")
    if name in _VIEWS:
        return Cost(calls=1)
    cost = Cost(calls=1)
    for size in _SIZES if _is_symbolic(value) else _SIZES[:1]:
        cost += _cost_at(name, value, size)
    return cost


def _cost_at(name: str, call: tvm.ir.Call, size: int) -> Cost:
    operands = list(dict.fromkeys(_tensors(call.args)))
    results = list(_fields(call.ty))
    moved = sum(_byte_count(ty, size) for ty in (*(o.ty for o in operands), *results))
    made = sum(_count(ty, size) for ty in results)
    if name in _COPIES:
        # A slice reads no more than it keeps.
        return Cost(0, min(moved, 2 * sum(_byte_count(ty, size) for ty in results)))
    if name == "matmul":
        depth = _extent(operands[0].ty.shape.values[-1], size)
        return Cost(2 * made * depth, moved)
    if name.startswith("nn.conv"):
        weight = [_extent(d, size) for d in call.args[1].ty.shape.values]
        around = made if not name.endswith("_transpose") else _count(call.args[0].ty, size)
        return Cost(2 * around * math.prod(weight[1:]), moved)
    if name in _REDUCTIONS:
        return Cost(sum(_count(o.ty, size) for o in operands), moved)
    return Cost(_FLOPS.get(name, 1) * made, moved)


def _tensors(args: list[relax.Expr]) -> list[relax.Expr]:
    found: list[relax.Expr] = []
    for arg in args:
        if isinstance(arg, relax.Tuple):
            found += _tensors(list(arg.fields))
        elif isinstance(getattr(arg, "ty", None), relax.TensorType):
            found.append(arg)
    return found


def _fields(ty: relax.Type) -> list[relax.TensorType]:
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    if not all(isinstance(field, relax.TensorType) for field in fields):
        raise UnknownCost("it is no tensor")
    return fields


def _dims(ty: relax.TensorType) -> list[tirx.Expr]:
    values = getattr(ty.shape, "values", None)
    if values is None:
        raise UnknownCost("its shape is not known")
    return list(values)


def _count(ty: relax.TensorType, size: int) -> int:
    return math.prod(_extent(d, size) for d in _dims(ty))


def _byte_count(ty: relax.TensorType, size: int) -> int:
    dtype = str(getattr(ty.dtype, "dtype", ty.dtype))
    return _count(ty, size) * _element_bytes(dtype)


@cache
def _element_bytes(dtype: str) -> int:
    return max(1, tvm.runtime.DataType(dtype).bits // 8)


def _extent(dim: tirx.Expr, size: int) -> int:
    if isinstance(dim, tirx.IntImm):
        return int(dim.value)
    fixed = tvm_ffi.structural_map(dim, (tirx.Var, lambda v: tirx.IntImm(str(v.ty.dtype), size)))
    value = Analyzer().simplify(fixed)
    return max(0, int(value)) if isinstance(value, tirx.IntImm) else size


def _is_symbolic(call: tvm.ir.Call) -> bool:
    types = [o.ty for o in _tensors(call.args)] + _fields(call.ty)
    return any(not isinstance(d, tirx.IntImm) for ty in types for d in _dims(ty))


def element_kind(value: relax.Expr) -> str:
    """Return "f", "i" or "b" for floats, integers and booleans, "" for anything else."""
    if not isinstance(getattr(value, "ty", None), relax.TensorType):
        return ""
    dtype = dtype_of(value)
    if dtype == "bool":
        return "b"
    if dtype in ("float16", "bfloat16", "float32", "float64"):
        return "f"
    return "i" if dtype.startswith(("int", "uint")) and dtype[-1] in "8624" else ""
