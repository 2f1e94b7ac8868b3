"""Determinants, inverses, linear systems and Cholesky's factors, computed in float64."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from frontends.computations import linear_systems
from frontends.computations.determinant import determinant, log_determinant
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.value_checks import require_between
from frontends.torch.registry import converter
from frontends.torch.sizes import product
from frontends.torch.symbolic_shapes import Size


@converter("aten._linalg_det.default")
def det(b: GraphBuilder, x: Value) -> tuple[relax.Expr, None, None]:
    """The determinant of each matrix [..., n, n]; what only its gradient reads is left out."""
    _refuse_factors(b, 1, 2)
    return b.reshape(b.te(determinant, _matrices(b, b.tensor(x))), b.result_shape), None, None


@converter("aten._linalg_slogdet.default")
def slogdet(b: GraphBuilder, x: Value) -> tuple[relax.Expr | None, ...]:
    """Sign and logarithm of the determinant of each matrix."""
    _refuse_factors(b, 2, 3)
    found = b.parts(b.te(log_determinant, _matrices(b, b.tensor(x))), 2)
    return (*(b.reshape(part, b.result_shape) for part in found), None, None)


@converter("aten.linalg_inv.default", "aten.inverse.default")
def inverse(b: GraphBuilder, x: Value) -> relax.Expr:
    """The inverse of each matrix; a run fails where one is singular."""
    return inverse_ex(b, x, check_errors=True)[0]


@converter("aten.linalg_inv_ex.default")
def inverse_ex(
    b: GraphBuilder, x: Value, *, check_errors: bool = False
) -> tuple[relax.Expr, relax.Expr]:
    """The inverse of each matrix, and the number of its first pivot that is 0, or 0."""
    data = b.tensor(x)
    found, info = b.parts(b.te(linear_systems.inverse, _matrices(b, data), name="inverse"), 2)
    found, info = b.reshape(found, b.shape(data)), b.reshape(info, b.shape(data)[:-2])
    if check_errors:
        _require_none(b, info, "a matrix is singular")
    return found, info


@converter("aten.linalg_solve.default")
def solve(b: GraphBuilder, x: Value, y: Value, *, left: bool = True) -> relax.Expr:
    """R of x R = y, or R x = y; y is a matrix, or a vector."""
    return solve_ex(b, x, y, left=left, check_errors=True)[0]


@converter("aten._linalg_solve_ex.default")
def solve_ex(
    b: GraphBuilder, x: Value, y: Value, *, left: bool = True, check_errors: bool = False
) -> tuple[relax.Expr, None, None, relax.Expr]:
    """The same, and the number of the first pivot that is 0, or 0."""
    data, right = b.operands(x, y)
    if isinstance(b.node.meta["val"], tuple | list):
        _refuse_factors(b, 1, 2)
    shape, own = b.shape(data), b.shape(right)
    # By the specification: y is a batch of vectors if it has the shape of x without its last axis.
    is_vector = len(own) == 1 or (len(own) == len(shape) - 1 and own == shape[:-1])
    if is_vector:
        right = b.reshape(right, [*own, 1])
    left_side = data if left else _transposed(b, data)
    columns = right if left or is_vector else _transposed(b, right)
    result, info = _solved(b, left_side, columns)
    if not left and not is_vector:
        result = _transposed(b, result)
    if check_errors:
        _require_none(b, info, "a matrix is singular")
    return b.reshape(result, b.result_shape), None, None, info


@converter("aten.linalg_solve_triangular.default")
def solve_triangular(
    b: GraphBuilder,
    x: Value,
    y: Value,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> relax.Expr:
    """R of x R = y, or R x = y, where x is triangular."""
    data, right = b.operands(x, y)
    if not left:  # the transposed system
        data, right, upper = _transposed(b, data), _transposed(b, right), not upper
    result = _triangular(b, data, right, upper, unitriangular)
    return result if left else _transposed(b, result)


@converter("aten.linalg_cholesky.default", "aten.cholesky.default")
def cholesky(b: GraphBuilder, x: Value, upper: bool = False) -> relax.Expr:
    """L of x = L L^T for each matrix, or L^T; a run fails where one is not positive definite."""
    return cholesky_ex(b, x, upper=upper, check_errors=True)[0]


@converter("aten.linalg_cholesky_ex.default")
def cholesky_ex(
    b: GraphBuilder, x: Value, *, upper: bool = False, check_errors: bool = False
) -> tuple[relax.Expr, relax.Expr]:
    """The same, and the size of the first leading part that is not positive definite, or 0."""
    data = b.tensor(x)
    shape = b.shape(data)
    matrices = _matrices(b, _transposed(b, data) if upper else data)
    found, info = b.parts(b.te(linear_systems.cholesky, matrices), 2)
    factor = b.reshape(found, shape)
    info = b.reshape(info, shape[:-2])
    if check_errors:
        _require_none(b, info, "a matrix is not positive definite")
    return (_transposed(b, factor) if upper else factor), info


@converter("aten.cholesky_solve.default")
def cholesky_solve(b: GraphBuilder, y: Value, factor: Value, upper: bool = False) -> relax.Expr:
    """R of L L^T R = y."""
    right, lower = b.operands(y, factor)
    lower = _transposed(b, lower) if upper else lower
    half = _triangular(b, lower, right, False, False)
    return _triangular(b, _transposed(b, lower), half, True, False)


@converter("aten.cholesky_inverse.default")
def cholesky_inverse(b: GraphBuilder, factor: Value, upper: bool = False) -> relax.Expr:
    """The inverse of L L^T."""
    shape = b.shape(b.tensor(factor))
    one = b.emit(relax.op.eye(shape[-1], shape[-1], 0, dtype=b.dtype))
    return cholesky_solve(b, b.broadcast(one, shape), factor, upper)


def _solved(b: GraphBuilder, x: relax.Expr, y: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Return R of x R = y and what `linear_systems.solve` says of each matrix of x."""
    left, right, batch = _aligned(b, x, y)
    rows, columns = b.shape(right)[1:]
    found, info = b.parts(b.te(linear_systems.solve, left, right), 2)
    return b.reshape(found, [*batch, rows, columns]), b.reshape(info, batch)


def _triangular(
    b: GraphBuilder, x: relax.Expr, y: relax.Expr, upper: bool, unit: bool
) -> relax.Expr:
    left, right, batch = _aligned(b, x, y)

    def compute(*tensors: relax.Expr) -> relax.Expr:
        return linear_systems.solve_triangular(*tensors, upper=upper, unit=unit)

    found = b.te(compute, left, right, name="solve_triangular")
    return b.reshape(found, [*batch, *b.shape(right)[1:]])


def _aligned(
    b: GraphBuilder, x: relax.Expr, y: relax.Expr
) -> tuple[relax.Expr, relax.Expr, list[Size]]:
    """Return two batches of matrices of one length each (number, n, k), and their batch axes."""
    batch = _broadcast(b.shape(x)[:-2], b.shape(y)[:-2])
    left, right = (_matrices(b, b.broadcast(m, [*batch, *b.shape(m)[-2:]])) for m in (x, y))
    return left, right, batch


def _broadcast(left: Sequence[Size], right: Sequence[Size]) -> list[Size]:
    """Return the axes of two batches that are broadcast with each other."""
    rank = max(len(left), len(right))
    pairs = zip(
        [1] * (rank - len(left)) + list(left), [1] * (rank - len(right)) + list(right), strict=True
    )
    return [other if isinstance(own, int) and own == 1 else own for own, other in pairs]


def _matrices(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    """Return matrices [..., n, m] as (number, n, m)."""
    shape = b.shape(x)
    return b.reshape(x, [product(shape[:-2]), *shape[-2:]])


def _transposed(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    rank = x.ty.ndim
    return b.permute(x, [*range(rank - 2), rank - 1, rank - 2])


def _refuse_factors(b: GraphBuilder, *places: int) -> None:
    """Refuse to give what only an operator's gradient reads.

    Raises:
        UnsupportedOperator: If something reads it.
    """
    if any(b.is_read(place) for place in places):
        raise b.unsupported("factors that only its gradient needs")


def _require_none(b: GraphBuilder, info: relax.Expr, message: str) -> None:
    """Let the run fail unless no matrix is at fault."""
    require_between(b, info, f"{b.node.target}: {message}", 0, 0)
