"""Operators on complex numbers, and those between complex and real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax
from tvm.relax import op as R

from frontends.torch.complex_numbers import (
    Complex,
    as_complex,
    from_pairs,
    modulus,
    multiply,
    reciprocal,
    to_pairs,
)
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import REGISTRY, complex_converter

# Operators that do the same to both parts: they move numbers, or are linear in them.
_PART_BY_PART = (
    "_unsafe_view.default",
    "alias.default",
    "clone.default",
    "cumsum.default",
    "detach.default",
    "diagonal.default",
    "expand.default",
    "flip.default",
    "gather.default",
    "index.Tensor",
    "index_select.default",
    "lift_fresh_copy.default",
    "mean.default",
    "mean.dim",
    "neg.default",
    "permute.default",
    "repeat.default",
    "roll.default",
    "select.int",
    "slice.Tensor",
    "split_with_sizes.default",
    "squeeze.dim",
    "squeeze.dims",
    "sum.default",
    "sum.dim_IntList",
    "t.default",
    "transpose.int",
    "unfold.default",
    "unsqueeze.default",
    "view.default",
)


def _register_part_by_part(target: str) -> None:
    @complex_converter(target)
    def convert(b: GraphBuilder, *args: Any, **kwargs: Any) -> Any:
        """Convert by the operator on real numbers, twice."""

        def part(place: int) -> Any:
            def pick(leaf: Any) -> Any:
                return leaf if _is_real(leaf) else as_complex(b, leaf, b.dtype).parts[place]

            given = pytree.tree_map(pick, (args, kwargs), is_leaf=lambda x: isinstance(x, Complex))
            return REGISTRY[target](b, *given[0], **given[1])

        real, imaginary = part(0), part(1)
        if isinstance(real, tuple):
            return tuple(_bound(b, *pair) for pair in zip(real, imaginary, strict=True))
        return _bound(b, real, imaginary)


@complex_converter("aten.cat.default")
def cat(b: GraphBuilder, tensors: Any, dim: int = 0) -> Complex:
    """Concatenate along an axis; real operands get a zero part."""
    given = [as_complex(b, tensor, b.dtype).parts for tensor in tensors]
    join = REGISTRY["aten.cat.default"]
    return _bound(b, *(join(b, list(parts), dim) for parts in zip(*given, strict=True)))


def _bound(b: GraphBuilder, *parts: relax.Expr) -> Complex:
    return Complex(*(p if isinstance(p, relax.Var) else b.emit(p) for p in parts))


for _name in _PART_BY_PART:
    _register_part_by_part(f"aten.{_name}")


@complex_converter("aten.view_as_real.default")
def view_as_real(b: GraphBuilder, z: Complex) -> relax.Expr:
    """Return pairs of real numbers, (..., 2)."""
    return to_pairs(b, z)


@complex_converter("aten.view_as_complex.default")
def view_as_complex(b: GraphBuilder, x: Value) -> Complex:
    """Read pairs of real numbers, (..., 2), as complex ones."""
    return from_pairs(b, b.tensor(x))


@complex_converter("aten.complex.default")
def complex_(b: GraphBuilder, real: Value, imag: Value) -> Complex:
    """Join real and imaginary parts, broadcast."""
    shape = b.result_shape
    return Complex(*(b.broadcast(b.tensor(part, b.dtype), shape) for part in (real, imag)))


@complex_converter("aten.polar.default")
def polar(b: GraphBuilder, radius: Value, angle: Value) -> Complex:
    """Complex numbers from modulus and angle in radians."""
    r, phi = b.tensor(radius, b.dtype), b.tensor(angle, b.dtype)
    return _bound(b, *(R.multiply(r, b.emit(wave(phi))) for wave in (R.cos, R.sin)))


@complex_converter("aten._to_copy.default")
def to_copy(b: GraphBuilder, z: Value, **_placement: Any) -> Complex | relax.Expr:
    """Cast; a real result keeps the real part."""
    if b.is_complex_result:
        return as_complex(b, z, b.dtype)
    return b.tensor(z.re, b.dtype)


@complex_converter(
    "aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default"
)
def conj(b: GraphBuilder, z: Complex) -> Complex:
    """The conjugate."""
    return Complex(z.re, b.emit(R.negative(z.im)))


@complex_converter("aten.abs.default")
def abs_(b: GraphBuilder, z: Complex) -> relax.Expr:
    """The modulus."""
    return modulus(b, z)


@complex_converter("aten.angle.default")
def angle(b: GraphBuilder, z: Complex) -> relax.Expr:
    """The angle to the real axis in radians."""
    return R.atan2(z.im, z.re)


@complex_converter("aten.sgn.default")
def sgn(b: GraphBuilder, z: Complex) -> Complex:
    """Z / |z|, zero for zero."""
    size = modulus(b, z)
    safe = b.emit(R.where(R.equal(size, relax.const(0, b.dtype)), relax.const(1, b.dtype), size))
    return _bound(b, *(R.divide(part, safe) for part in z.parts))


@complex_converter("aten.add.Tensor", "aten.add.Scalar")
def add(b: GraphBuilder, x: Value, y: Value, alpha: float = 1) -> Complex:
    """X + alpha * y."""
    return _sum(b, R.add, x, y, alpha)


@complex_converter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: GraphBuilder, x: Value, y: Value, alpha: float = 1) -> Complex:
    """X - alpha * y."""
    return _sum(b, R.subtract, x, y, alpha)


def _sum(b: GraphBuilder, op: Callable[..., Any], x: Value, y: Value, alpha: float) -> Complex:
    right = y if alpha == 1 else mul(b, y, alpha)
    pairs = zip(as_complex(b, x, b.dtype).parts, as_complex(b, right, b.dtype).parts, strict=True)
    return _bound(b, *(op(*pair) for pair in pairs))


@complex_converter("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: GraphBuilder, x: Value, y: Value) -> Complex:
    """X * y; a real factor scales both parts."""
    for z, factor in ((x, y), (y, x)):
        if isinstance(z, Complex) and _is_real(factor):
            by = b.tensor(factor, b.dtype)
            return _bound(b, *(R.multiply(b.tensor(part, b.dtype), by) for part in z.parts))
    return multiply(b, as_complex(b, x, b.dtype), as_complex(b, y, b.dtype), R.multiply)


def _is_real(value: Value) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_complex()
    return not isinstance(value, Complex | complex)


@complex_converter("aten.div.Tensor", "aten.div.Scalar")
def div(b: GraphBuilder, x: Value, y: Value) -> Complex:
    """X / y."""
    if isinstance(x, Complex) and _is_real(y):
        by = b.tensor(y, b.dtype)
        return _bound(b, *(R.divide(b.tensor(part, b.dtype), by) for part in x.parts))
    return mul(b, x, reciprocal(b, as_complex(b, y, b.dtype)))


@complex_converter("aten.reciprocal.default")
def reciprocal_(b: GraphBuilder, z: Value) -> Complex:
    """1 / z."""
    return reciprocal(b, as_complex(b, z, b.dtype))


@complex_converter("aten.pow.Tensor_Scalar")
def power(b: GraphBuilder, z: Value, exponent: Value) -> Complex:
    """Z to a small whole power, by products."""
    if exponent not in range(1, 9):
        raise b.unsupported(f"complex numbers and the exponent {exponent}")
    base = as_complex(b, z, b.dtype)
    result = base
    for _ in range(int(exponent) - 1):
        result = multiply(b, result, base, R.multiply)
    return result


@complex_converter("aten.exp.default")
def exp(b: GraphBuilder, z: Value) -> Complex:
    """E to the power z: the modulus is that of the real part, the angle is the imaginary one."""
    value = as_complex(b, z, b.dtype)
    return polar(b, b.emit(R.exp(value.re)), value.im)


@complex_converter("aten.log.default")
def log(b: GraphBuilder, z: Value) -> Complex:
    """log|z| + i angle(z)."""
    value = as_complex(b, z, b.dtype)
    return _bound(b, R.log(modulus(b, value)), R.atan2(value.im, value.re))


@complex_converter("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def matmul(b: GraphBuilder, x: Value, y: Value) -> Complex:
    """X @ y by four products of real matrices."""
    return multiply(b, as_complex(b, x, b.dtype), as_complex(b, y, b.dtype), R.matmul)


@complex_converter("aten.where.self")
def where(b: GraphBuilder, condition: Value, x: Value, y: Value) -> Complex:
    """X where the condition holds, y elsewhere."""
    mask = b.tensor(condition, "bool")
    pairs = zip(as_complex(b, x, b.dtype).parts, as_complex(b, y, b.dtype).parts, strict=True)
    return _bound(b, *(R.where(mask, *pair) for pair in pairs))


@complex_converter("aten.constant_pad_nd.default")
def constant_pad(b: GraphBuilder, z: Complex, pad: Any, value: complex = 0) -> Complex:
    """Pad the last axes."""
    number = complex(value)
    fills = zip(z.parts, (number.real, number.imag), strict=True)
    pad_part = REGISTRY["aten.constant_pad_nd.default"]
    return _bound(b, *(pad_part(b, part, pad, fill) for part, fill in fills))


@complex_converter("aten.full.default", "aten.full_like.default")
def full(b: GraphBuilder, size: Any, fill_value: complex, **_options: Any) -> Complex:
    """A tensor of one number."""
    number = complex(fill_value)
    make = REGISTRY["aten.full.default"]
    return _bound(b, *(make(b, size, part) for part in (number.real, number.imag)))


@complex_converter("aten.scalar_tensor.default")
def scalar_tensor(b: GraphBuilder, value: complex, **_options: Any) -> Complex:
    """A rank-0 tensor."""
    return as_complex(b, complex(value), b.dtype)


@complex_converter("aten.eq.Tensor", "aten.eq.Scalar")
def eq(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """Whether both parts are equal."""
    dtype = next(str(z.re.ty.dtype) for z in (x, y) if isinstance(z, Complex))
    pairs = zip(as_complex(b, x, dtype).parts, as_complex(b, y, dtype).parts, strict=True)
    return R.logical_and(*(b.emit(R.equal(*pair)) for pair in pairs))


@complex_converter("aten.ne.Tensor", "aten.ne.Scalar")
def ne(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """Whether a part differs."""
    return R.logical_not(b.emit(eq(b, x, y)))
