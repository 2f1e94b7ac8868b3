"""Determinants, computed in float64."""

from __future__ import annotations

from tvm import relax

from frontends.computations.determinant import determinant
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten._linalg_det.default")
def det(b: GraphBuilder, x: Value) -> tuple[relax.Expr, None, None]:
    """The determinant of each matrix [..., n, n]; what only its gradient reads is left out."""
    if b.is_read(1) or b.is_read(2):
        raise b.unsupported("factors that only its gradient needs")
    data = b.tensor(x)
    shape = b.shape(data)
    found = b.te(determinant, b.reshape(data, [product(shape[:-2]), *shape[-2:]]))
    return b.reshape(found, b.result_shape), None, None
