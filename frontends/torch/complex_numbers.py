"""Complex numbers as pairs of real tensors: TVM has no complex type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax
from tvm.relax import op as R

from frontends.torch.graph_builder import GraphBuilder, Value


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: its real and its imaginary part, of one shape and dtype."""

    re: relax.Expr
    im: relax.Expr

    @property
    def parts(self) -> tuple[relax.Expr, relax.Expr]:
        """Both parts."""
        return self.re, self.im


def is_complex(node: torch.fx.Node) -> bool:
    """Tell whether a node takes complex numbers or gives some."""
    given = [operand.meta.get("val") for operand in node.all_input_nodes]
    leaves = pytree.tree_leaves([node.meta.get("val"), given])
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves) or any(
        isinstance(a, complex) for a in pytree.tree_leaves((node.args, node.kwargs))
    )


def as_complex(b: GraphBuilder, value: Value, dtype: str) -> Complex:
    """Return a value as complex numbers with parts of `dtype`; real ones get a zero part."""
    if isinstance(value, Complex):
        return Complex(*(b.tensor(part, dtype) for part in value.parts))
    if isinstance(value, complex):
        return Complex(relax.const(value.real, dtype), relax.const(value.imag, dtype))
    if isinstance(value, torch.Tensor) and value.is_complex():
        pairs = torch.view_as_real(value.resolve_conj())
        return Complex(*(b.tensor(pairs[..., i].contiguous(), dtype) for i in range(2)))
    real = b.tensor(value, dtype)
    return Complex(real, b.emit(R.zeros_like(real)) if real.ty.ndim else relax.const(0, dtype))


def from_pairs(b: GraphBuilder, pairs: relax.Expr) -> Complex:
    """Return a real tensor (..., 2) as complex numbers."""
    axis = pairs.ty.ndim - 1
    shape = b.shape(pairs)[:-1]
    halves = (b.slice_axis(pairs, axis, part, part + 1) for part in range(2))
    return Complex(*(b.reshape(b.emit(half), shape) for half in halves))


def to_pairs(b: GraphBuilder, z: Complex) -> relax.Expr:
    """Return complex numbers as a real tensor (..., 2)."""
    axis = z.re.ty.ndim
    return b.emit(R.concat([b.emit(R.expand_dims(part, axis)) for part in z.parts], axis))


def multiply(b: GraphBuilder, x: Complex, y: Complex, product: Callable[..., Any]) -> Complex:
    """Return the product of two tensors by a product of real ones, such as `R.matmul`."""

    def term(left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return b.emit(product(left, right))

    real = R.subtract(term(x.re, y.re), term(x.im, y.im))
    imaginary = R.add(term(x.re, y.im), term(x.im, y.re))
    return Complex(b.emit(real), b.emit(imaginary))


def reciprocal(b: GraphBuilder, z: Complex) -> Complex:
    """Return 1 / z by R. L. Smith's method, "Algorithm 116: complex division", CACM 5 (1962).

    With the part of larger magnitude as divisor nothing overflows before the result does.
    """
    one = relax.const(1, z.re.ty.dtype)
    absolute = [b.emit(R.abs(part)) for part in z.parts]
    flat = b.emit(R.greater_equal(*absolute))
    large, small = (b.emit(R.where(flat, *pair)) for pair in (z.parts, z.parts[::-1]))
    ratio = b.emit(R.divide(small, large))
    scale = b.emit(R.divide(one, b.emit(R.add(large, b.emit(R.multiply(small, ratio))))))
    scaled = b.emit(R.multiply(ratio, scale))
    real = b.emit(R.where(flat, scale, scaled))
    return Complex(real, b.emit(R.negative(b.emit(R.where(flat, scaled, scale)))))


def modulus(b: GraphBuilder, z: Complex) -> relax.Expr:
    """Return |z|, scaled by the larger part so that squares neither overflow nor vanish."""
    absolute = [b.emit(R.abs(part)) for part in z.parts]
    large, small = b.emit(R.maximum(*absolute)), b.emit(R.minimum(*absolute))
    zero = relax.const(0, z.re.ty.dtype)
    plain = b.emit(R.equal(large, zero))
    divisor = b.emit(R.where(plain, relax.const(1, z.re.ty.dtype), large))
    ratio = b.emit(R.divide(small, divisor))
    root = b.emit(R.sqrt(b.emit(R.add(relax.const(1, z.re.ty.dtype), R.multiply(ratio, ratio)))))
    infinite = b.emit(R.isinf(large))
    return b.emit(R.where(infinite, large, b.emit(R.multiply(large, root))))
