"""Name the sizes in a kernel that are converted from floats: floor(1.2 * h) becomes a size.

TVM finds no bounds for a loop up to such a size, nor for one up to (floor(1.2 * h) - 3) // 2 + 1,
and then cannot even begin a schedule. Named, it is a size like any other: one that a tensor has is
read off that tensor, and the others are handed over by the caller, who computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from relax_passes.memory.live_ranges import result_types
from tir_schedules.variables import substitute, used_in


@dataclass(frozen=True)
class NamedConversions:
    """A kernel whose sizes are integers.

    Attributes:
        func: The kernel, with further parameters behind its inputs.
        added: What the caller hands over for them, in terms of the former kernel's variables.
    """

    func: tirx.PrimFunc
    added: tuple[tirx.Expr, ...] = ()


def name_conversions(func: tirx.PrimFunc, inputs: int) -> NamedConversions:
    """Name each size that is converted from a float.

    Args:
        func: A kernel.
        inputs: How many of its parameters are inputs; its results follow.
    """
    sizes: dict[tirx.Var, tirx.Expr] = {}
    plain = func
    while (conversion := _innermost_conversion(plain, sizes)) is not None:
        size = tirx.Var("size", conversion.ty.dtype)
        sizes[size] = substitute(conversion, sizes)
        plain = _replaced(plain, conversion, size)
    read_off = {dim for param in _tensors(plain) for dim in param.shape}
    missing = [size for size in dict.fromkeys(used_in(plain)) if size in sizes.keys() - read_off]
    if missing:
        params = [*plain.params[:inputs], *missing, *plain.params[inputs:]]
        plain = tirx.PrimFunc(params, plain.body, plain.ret_type, attrs=plain.attrs)
    return NamedConversions(plain, tuple(sizes[size] for size in missing))


def handed_over(
    added: tuple[tirx.Expr, ...], func: tirx.PrimFunc, call: tvm.ir.Call
) -> Iterator[tirx.Expr]:
    """Yield the arguments for the parameters that `name_conversions` has added to `func`."""
    if added:
        values = _bindings(func, call)
        yield from (substitute(size, values) for size in added)


def _innermost_conversion(func: tirx.PrimFunc, named: Iterable[tirx.Var]) -> tirx.Cast | None:
    """Return an integer that is converted from a float computed from sizes alone, if there is one.

    One computed from constants alone, as the depth of a sorting network, is as good as one. Of one
    within another, the inner one: the outer one is then computed from a size.

    Args:
        func: A kernel.
        named: Sizes that it is about to get, beside its own.
    """
    known = {*named, *(param for param in func.params if not hasattr(param, "shape"))}
    known.update(dim for param in _tensors(func) for dim in param.shape if _is_var(dim))
    found: list[tirx.Cast] = []

    def look(cast: tirx.Cast) -> None:
        used = used_in(cast)
        if not found and _is_conversion(cast) and used and known.issuperset(used):
            found.append(cast)

    tvm_ffi.structural_walk(func, (tirx.Cast, look), order="post")
    return found[0] if found else None


def _is_conversion(cast: tirx.Cast) -> bool:
    return "int" in str(cast.ty.dtype) and "float" in str(cast.value.ty.dtype)


def _replaced(func: tirx.PrimFunc, conversion: tirx.Cast, size: tirx.Var) -> tirx.PrimFunc:
    def visit(cast: tirx.Cast) -> tirx.Expr:
        return size if tvm_ffi.structural_equal(cast, conversion) else cast

    return tvm_ffi.structural_map(func, (tirx.Cast, visit))


def _tensors(func: tirx.PrimFunc) -> list[tirx.Var]:
    return [param for param in func.params if hasattr(param, "shape")]


def _is_var(dim: object) -> bool:
    return isinstance(dim, tirx.Var)


def _bindings(func: tirx.PrimFunc, call: tvm.ir.Call) -> Mapping[tirx.Var, tirx.Expr]:
    """Return what the variables of a kernel are in a call of it."""
    _, args, *_ = call.args
    types = [*(arg.ty for arg in args.fields), *result_types(call.ty_args[0])]
    values: dict[tirx.Var, tirx.Expr] = {}
    for place, (param, kind) in enumerate(zip(func.params, types, strict=True)):
        if hasattr(param, "shape"):
            pairs = zip(param.shape, kind.shape.values, strict=True)
            values.update((dim, value) for dim, value in pairs if _is_var(dim))
        else:
            values[param] = args.fields[place]
    return values
