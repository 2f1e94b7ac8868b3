"""Arithmetic on bfloat16 written out in float32 and bit operations.

A bfloat16 number is the upper half of a float32. TVM's own legalization converts the integer value
of the bits, not the number, where a conversion stands inside a let binding (0.27), so no bfloat16
expression may be left to it: only loads and stores of parameters are, as 16-bit patterns. Buffers
within a function hold patterns as uint16: else TVM widens them, and misses loads of them.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Expr, PrimFunc

_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_HALF, _WIDE = "bfloat16", "float32"


def compute_bfloat16_in_float32(func: PrimFunc) -> PrimFunc:
    """Return the function with every bfloat16 expression computed in float32.

    Values round to bfloat16, ties to even, where they are cast to it or stored; not in between.
    """
    if not _mentions(func):
        return func
    variables: dict[tirx.Var, tirx.Var] = {}
    patterns: dict[tirx.Var, tirx.Var] = {}  # buffers within the function

    def variable(var: tirx.Var) -> Expr:
        if isinstance(var.ty, tirx.BufferType):
            if _element(var) != _HALF or var in func.params:
                return var
            if var not in patterns:
                patterns[var] = var.with_dtype("uint16")
            return patterns[var]
        if not _is_half(var):
            return var
        return variables.setdefault(var, tirx.Var(var.name, _WIDE))

    def call(node: Call) -> Expr:
        name = getattr(node.op, "name", "")
        if name == "tirx.reinterpret":
            return _reinterpret(node)
        if not _is_half(node):
            return node
        return tirx.call_intrin(_WIDE, node.op, *node.args)

    def binary(node: Any) -> Expr:
        return type(node)(node.a, node.b) if _is_half(node) else node

    def select(node: tirx.Select) -> Expr:
        if not _is_half(node):
            return node
        return tirx.Select(node.condition, node.true_value, node.false_value)

    def let(node: tirx.Let) -> Expr:
        return tirx.Let(node.var, node.value, node.body) if _is_half(node) else node

    def load(node: tvm.ir.TensorLoad) -> Expr:
        if not _is_half(node):
            return node
        if _element(node.source) == _HALF:
            return _widen(tirx.reinterpret("uint16", node))
        return _widen(tirx.BufferLoad(node.source, node.indices))

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        if node.buffer in patterns.values():
            return tirx.BufferStore(node.buffer, _narrow_bits(node.value), node.indices)
        if _element(node.buffer) != _HALF:
            return node
        bits = tirx.reinterpret(_HALF, _narrow_bits(node.value))
        return tirx.BufferStore(node.buffer, bits, node.indices)

    callbacks = [
        (tirx.Var, variable),
        (tirx.FloatImm, lambda n: tirx.FloatImm(_WIDE, n.value) if _is_half(n) else n),
        (tvm.ir.TensorLoad, load),
        (tirx.Cast, _cast),
        (Call, call),
        (_BINARY, binary),
        (tirx.Select, select),
        (tirx.Let, let),
        (tirx.BufferStore, store),
    ]
    return func.with_body(tvm_ffi.structural_map(func.body, callbacks))


def _mentions(func: PrimFunc) -> bool:
    """Tell whether bfloat16 comes in or out of the function, or is cast to."""
    if any(_element(param) == _HALF for param in func.params):
        return True
    found: list[bool] = []
    tvm_ffi.structural_walk(func.body, (tirx.Cast, lambda node: found.append(_is_half(node))))
    return any(found)


def _is_half(node: Any) -> bool:
    return str(node.ty) == _HALF


def _element(buffer: Any) -> str:
    dtype = getattr(buffer.ty, "dtype", "")
    return str(getattr(dtype, "dtype", dtype))


def _cast(node: tirx.Cast) -> Expr:
    """Convert to bfloat16 by rounding; other conversions already read a float32."""
    if not _is_half(node):
        return node
    value = node.value if str(node.value.ty) == _WIDE else tirx.Cast(_WIDE, node.value)
    return _widen(_narrow_bits(value))


def _reinterpret(node: Call) -> Expr:
    """Keep the meaning of bit patterns that the model itself reads or writes."""
    (value,) = node.args
    if _is_half(node):
        return _widen(value)
    if str(node.ty) in ("uint16", "int16") and str(value.ty) == _WIDE:
        return _narrow_bits(value).astype(str(node.ty))
    return node


def _widen(bits: Expr) -> Expr:
    """Return the float32 number of a uint16 bit pattern."""
    return tirx.reinterpret(_WIDE, bits.astype("uint32") << tirx.const(16, "uint32"))


def _narrow_bits(value: Expr) -> Expr:
    """Return the uint16 pattern of a float32 number rounded to bfloat16; NaN stays one."""
    bits = tirx.Var("bits", "uint32")
    odd = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
    rounded = (bits + tirx.const(0x7FFF, "uint32") + odd) >> tirx.const(16, "uint32")
    quiet = (bits >> tirx.const(16, "uint32")) | tirx.const(0x40, "uint32")
    is_nan = (bits & tirx.const(0x7FFFFFFF, "uint32")) > tirx.const(0x7F800000, "uint32")
    pattern = tirx.Select(is_nan, quiet, rounded).astype("uint16")
    return tirx.Let(bits, tirx.reinterpret("uint32", value), pattern)
