"""Images that kernels of an importer enlarge, as modules: bilinear by tables, or whole repeats."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from frontends.computations.resample import combine
from frontends.computations.resample_tables import Mode, static_coordinates, static_tables


def enlarge(bb: relax.BlockBuilder, x: relax.Expr, axis: int, size: int) -> relax.Var:
    """Resample one axis of an image of static size linearly."""
    length = int(x.ty.shape.values[axis])
    mode = Mode("linear")
    at = static_coordinates(length, size, size / length, (0.0, 1.0), mode)
    indices, weights = static_tables(at, length, size / length, mode)
    return bb.emit_te(
        lambda data, i, w: combine(data, axis, i, w),
        *(x, relax.const(indices, "int32"), relax.const(weights, "float32")),
        primfunc_name_hint="resize",
    )


def repeat(bb: relax.BlockBuilder, x: relax.Expr, axis: int, factor: int) -> relax.Var:
    """Repeat each element along an axis."""

    def compute(data: te.Tensor) -> te.Tensor:
        dims = list(data.shape)
        dims[axis] = dims[axis] * factor

        def pick(*index: Any) -> Any:
            places = list(index)
            places[axis] = tirx.floordiv(index[axis], factor)
            return data(*places)

        return te.compute(dims, pick, name="upsample")

    return bb.emit_te(compute, x, primfunc_name_hint="upsample")
