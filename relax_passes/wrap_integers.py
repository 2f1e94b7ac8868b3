"""Let sums, differences and products of integer elements wrap around, as NumPy and ONNX Runtime do.

TVM's arithmetic simplifier takes integers for numbers without end, and its LLVM code marks their
arithmetic, of 32 bits and more, as never overflowing, signed or not: LLVM then writes x < x + 1 as
true. So here such arithmetic is done in twice the bits, which cannot overflow, and cut off. LLVM
sees that only the low half is wanted, and no instruction is left of it. An exclusive or with 0
hides the cut from TVM, which takes a value that it cuts off for one that fits.

What cannot overflow (sums and products of narrower elements), what a loop adds up, and the
arithmetic of indices stay as they are: no rule of TVM can go wrong there.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import DataType, tirx

from relax_passes.pass_base import PassContext, graph_pass
from tir_schedules.variables import substitute, used_in

NAME = "wrap_integers"
_WIDE = {"int32": "int64", "uint32": "int64", "int64": "int128", "uint64": "int128"}
_UNSIGNED = {"int32": "uint32", "int64": "uint64"}


@graph_pass(name=NAME, phase="lower")
def wrap_integers(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Let arithmetic of integer elements wrap around where it overflows."""
    types = _WIDE if ctx.target.kind.name == "llvm" else _UNSIGNED  # in C, unsigned ones wrap
    functions = {
        var: _wrap(func, types) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions.items()
    }
    changed = sum(not func.same_as(mod[var]) for var, func in functions.items())
    if not changed:
        return mod, False
    ctx.log.fire(NAME, f"integers of {changed} functions wrap around")
    return tvm.IRModule(functions, attrs=mod.attrs), True


def _wrap(func: tirx.PrimFunc, types: dict[str, str]) -> tirx.PrimFunc:
    """Return the function with arithmetic that wraps, the same one where nothing can overflow."""
    wrapped = 0

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        nonlocal wrapped
        value, found = _wrapped_value(node, types)
        wrapped += found
        return tirx.BufferStore(node.buffer, value, node.indices) if found else node

    body = tvm_ffi.structural_map(func.body, (tirx.BufferStore, store))
    return func.with_body(body) if wrapped else func


def _wrapped_value(store: tirx.BufferStore, types: dict[str, str]) -> tuple[tirx.Expr, int]:
    """Return what is stored with arithmetic that wraps, and how many operations that took."""
    loads: dict[tirx.Var, tvm.ir.TensorLoad] = {}

    def element(load: tvm.ir.TensorLoad) -> tirx.Var:
        var = tirx.Var("element", str(load.ty.dtype))
        loads[var] = load
        return var

    # Names stand for the elements, so that nothing of their indices is in sight.
    value = tvm_ffi.structural_map(store.value, (tvm.ir.TensorLoad, element), order="pre")
    if not loads or any(load.source.same_as(store.buffer) for load in loads.values()):
        return store.value, 0
    found = 0

    def operation(node: tirx.Add | tirx.Sub | tirx.Mul) -> tirx.Expr:
        nonlocal found
        dtype = str(node.ty.dtype)
        other = types.get(dtype)
        if other is None or loads.keys().isdisjoint(used_in(node)) or _fits(_interval(node), dtype):
            return node
        found += 1
        return _in_type(node, other)

    value = tvm_ffi.structural_map(
        value, ((tirx.Add, operation), (tirx.Sub, operation), (tirx.Mul, operation))
    )
    return substitute(value, loads), found


def _in_type(node: tirx.Add | tirx.Sub | tirx.Mul, other: str) -> tirx.Expr:
    """Return the operation done in another type and cut off, hidden from TVM's bounds."""
    dtype = str(node.ty.dtype)
    result = type(node)(tirx.Cast(other, node.a), tirx.Cast(other, node.b))
    return tirx.bitwise_xor(tirx.Cast(dtype, result), tirx.const(0, dtype))


def _interval(value: tirx.Expr) -> tuple[int, int]:
    """Return bounds of an integer expression, those of its type where nothing else is known."""
    if isinstance(value, tirx.IntImm):
        return int(value.value), int(value.value)
    if isinstance(value, tirx.Cast) and DataType(str(value.value.ty.dtype)).type_code in (0, 1, 6):
        inner = _interval(value.value)
        if _fits(inner, str(value.ty.dtype)):
            return inner
    if isinstance(value, tirx.Add | tirx.Sub | tirx.Mul):
        (a, b), (c, d) = _interval(value.a), _interval(value.b)
        if isinstance(value, tirx.Add):
            return a + c, b + d
        if isinstance(value, tirx.Sub):
            return a - d, b - c
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    return _limits(str(value.ty.dtype))


def _limits(dtype: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    kind = DataType(dtype)
    if dtype == "bool":
        return 0, 1
    if dtype.startswith("uint"):
        return 0, 2**kind.bits - 1
    return -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1


def _fits(interval: tuple[int, int], dtype: str) -> bool:
    low, high = _limits(dtype)
    return low <= interval[0] and interval[1] <= high
