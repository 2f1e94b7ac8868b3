"""Where the sizes of a function come from, in words for the user."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from relax_passes.memory.live_ranges import bindings_of

_READS_SIZES = "vm.builtin.tensor_to_shape"


def size_origins(func: relax.Function) -> dict[tirx.Var, str]:
    """Return what each symbol stands for: the axis of a tensor, or the element of a vector.

    A size that is computed from others has no entry.
    """
    origins: dict[tirx.Var, str] = {}
    for param in func.params:
        _note(origins, param.ty, "axis", param.name)
    given = set(func.params)
    read: dict[relax.Var, str] = {}  # by shape, the vector it is read from if that is a parameter
    for binding in bindings_of(func):
        if isinstance(binding, relax.MatchCast):
            if binding.value in read:
                # A vector that was computed has a name of ours; the cast's says what for.
                name = read[binding.value] or binding.var.name
                _note(origins, binding.ty, "element", name)
            elif isinstance(binding.ty, relax.TensorType):
                _note(origins, binding.ty, "axis", binding.var.name)
        elif _reads_sizes(binding.value):
            vectors = given.intersection(relax.analysis.free_vars(binding.value))
            read[binding.var] = vectors.pop().name if len(vectors) == 1 else ""
    return origins


def _reads_sizes(value: relax.Expr) -> bool:
    """Tell whether an expression reads a shape from the elements of a tensor."""
    callees = [value.op, *value.args] if isinstance(value, relax.Call) else []
    return any(isinstance(f, relax.ExternFunc) and f.global_symbol == _READS_SIZES for f in callees)


def _note(origins: dict[tirx.Var, str], ty: tvm.ir.Type, part: str, name: str) -> None:
    if isinstance(ty, relax.TensorType):
        shape = ty.shape
        sizes = shape.values if isinstance(shape, relax.ShapeExpr) else ()
    else:
        sizes = getattr(ty, "values", None) or ()
    for place, size in enumerate(sizes):
        if isinstance(size, tirx.Var):
            origins.setdefault(size, f"{part} {place} of '{name}'")
