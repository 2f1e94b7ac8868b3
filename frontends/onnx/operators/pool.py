"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import relax
from tvm.relax import op as R

from frontends.computations import window_pool
from frontends.computations.unpool import max_unpool as unpool
from frontends.dims import Dim, all_static, dtype_of
from frontends.errors import InvalidModel
from frontends.onnx.indices import at_most
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.window import named_sizes, read_window, state_that_it_fits
from frontends.sliding_window import Window

_MAX = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
_AVERAGE = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}


@dataclass(frozen=True)
class Pool:
    """The windows of a node over its input.

    Attributes:
        stated: As the node states them.
        outputs: Number of windows along each axis.
        rounded: With end padding that gives `outputs` windows when rounding down; None where that
            needs sizes known now, or a rank that Relax has no operator for.
    """

    stated: Window
    outputs: tuple[Dim, ...]
    rounded: Window | None

    def windows(self, dims: list[Dim]) -> window_pool.Windows:
        """Return the windows for a tensor expression that is handed `dims`."""
        rank, stated = len(self.outputs), self.stated
        return window_pool.Windows(
            stated.kernel, stated.strides, stated.dilations, dims[:rank], dims[rank : 2 * rank]
        )

    def dims(self, op: Op) -> list[Dim]:
        """Return what `windows` reads, of node `op`."""
        return named_sizes(op, [*self.stated.begin, *self.outputs])

    def shaped(self, op: Op, result: relax.Expr) -> relax.Expr:
        """State that a kernel's result is (n, c, *outputs)."""
        wanted = [*op.shape()[:2], *self.outputs]
        if all_static(self.outputs):
            return result
        return op.match_shape(result, wanted, dtype_of(result))


def _read(op: Op) -> Pool:
    kernel = tuple(op.required("kernel_shape"))
    spatial = op.shape()[2:]
    window = read_window(op, kernel, spatial)
    ceil = bool(op.attr("ceil_mode", 0))
    outputs = window.outputs(op.arithmetic, spatial, ceil=ceil)
    state_that_it_fits(op, window, spatial, outputs, ceil=ceil)
    if len(kernel) not in _MAX or not window.is_static:
        return Pool(window, outputs, None)
    if not ceil or window.automatic:
        return Pool(window, outputs, window)
    if not all_static(spatial):
        return Pool(window, outputs, None)
    ends = [
        (outputs[a] - 1) * window.strides[a] + window.extent(a) - spatial[a] - window.begin[a]
        for a in range(len(kernel))
    ]
    return Pool(window, outputs, replace(window, end=tuple(max(end, 0) for end in ends)))


@converter("MaxPool")
def max_pool(op: Op) -> relax.Expr | tuple[relax.Expr, relax.Expr]:
    """Return window maxima and, if asked for, their flat indices."""
    pool, x = _read(op), op.x()
    if pool.rounded is not None:
        window = pool.rounded
        values = _MAX[len(window.kernel)](
            x, window.kernel, window.strides, window.padding, window.dilations
        )
    else:
        values = op.te(
            lambda data, dims: window_pool.max_pool(data, pool.windows(dims)), x, dims=pool.dims(op)
        )
        values = pool.shaped(op, values)
    if len(op.node.output) < 2 or not op.node.output[1]:
        return values
    column_major = bool(op.attr("storage_order", 0))
    values = op.emit(values)
    places = op.te(
        lambda data, maxima, dims: window_pool.max_places(
            data, maxima, pool.windows([*dims, *dims]), column_major=column_major
        ),
        x, values, name="max_pool_indices", dims=named_sizes(op, pool.stated.begin),
    )  # fmt: skip
    return values, places


@converter("AveragePool")
def average_pool(op: Op) -> relax.Expr:
    """Average each window; `count_include_pad` counts the padding that the node states.

    Padding that only `ceil_mode` adds never counts.
    """
    pool, x = _read(op), op.x()
    include, rank = bool(op.attr("count_include_pad", 0)), len(pool.outputs)
    window = pool.rounded
    if window is not None and include:
        if any(end > own for end, own in zip(window.end, pool.stated.end, strict=True)):
            window = None
    if window is not None:
        return _AVERAGE[rank](
            x,
            window.kernel,
            window.strides,
            window.padding,
            window.dilations,
            count_include_pad=include,
        )
    spatial, stated = op.shape()[2:], pool.stated
    low: list[Dim] = [-before for before in stated.begin] if include else [0] * rank
    high = [
        op.arithmetic.simplify(length + after) if include else length
        for length, after in zip(spatial, stated.end, strict=True)
    ]
    result = op.te(
        lambda data, dims: window_pool.average_pool(
            data, pool.windows(dims), dims[2 * rank : 3 * rank], dims[3 * rank :]
        ),
        x, dims=[*pool.dims(op), *low, *high],
    )  # fmt: skip
    return pool.shaped(op, result)


@converter("LpPool")
def lp_pool(op: Op) -> relax.Expr:
    """Return the p-norm of each window."""
    pool, p = _read(op), float(op.attr("p", 2))
    total = op.te(
        lambda data, dims: window_pool.sum_pool(data, pool.windows(dims)),
        _power(op, op.x(), p), dims=pool.dims(op),
    )  # fmt: skip
    return _root(op, pool.shaped(op, total), p)


def _power(op: Op, x: relax.Expr, p: float) -> relax.Expr:
    """Emit |x| ** p, in float32 for narrower types."""
    if op.dtype() in ("float16", "bfloat16"):
        x = op.emit(R.astype(x, "float32"))
    if p == 2:
        return op.emit(R.multiply(x, x))
    size = op.emit(R.abs(x))
    return size if p == 1 else op.emit(R.power(size, op.const(p, dtype_of(x))))


def _root(op: Op, x: relax.Expr, p: float) -> relax.Expr:
    """Emit x ** (1 / p) in the dtype of input 0."""
    if p == 2:
        x = op.emit(R.sqrt(x))
    elif p != 1:
        x = op.emit(R.power(x, op.const(1.0 / p, dtype_of(x))))
    return x if dtype_of(x) == op.dtype() else op.emit(R.astype(x, op.dtype()))


@converter("GlobalAveragePool")
def global_average_pool(op: Op) -> relax.Expr:
    """Average over all spatial axes, which stay as size 1."""
    if op.ndim() == 4:
        return R.nn.adaptive_avg_pool2d(op.x(), (1, 1))
    return R.mean(op.x(), list(range(2, op.ndim())), True)


@converter("GlobalMaxPool")
def global_max_pool(op: Op) -> relax.Expr:
    """Take the maximum over all spatial axes, which stay as size 1."""
    return R.max(op.x(), list(range(2, op.ndim())), True)


@converter("GlobalLpPool")
def global_lp_pool(op: Op) -> relax.Expr:
    """Return the p-norm over all spatial axes."""
    p = float(op.attr("p", 2))
    total = op.emit(R.sum(_power(op, op.x(), p), list(range(2, op.ndim())), True))
    return _root(op, total, p)


@converter("MaxUnpool")
def max_unpool(op: Op) -> relax.Expr:
    """Put each element where the pool had found it; the rest is zero.

    Places count in the shape that the pool's formula gives; a bigger output shape adds a border.
    """
    kernel = op.attr("kernel_shape")
    rank = len(kernel)
    strides, pads = op.attr("strides") or [1] * rank, op.attr("pads") or [0] * (2 * rank)
    shape = op.shape()
    source = [
        *shape[:2],
        *(
            (shape[2 + a] - 1) * strides[a] - pads[a] - pads[rank + a] + kernel[a]
            for a in range(rank)
        ),
    ]
    wanted = op.runtime_dims(2, len(shape)) if op.has(2) else source
    if len(wanted) != len(shape):
        raise InvalidModel(f"an output shape of rank {len(wanted)} for rank {len(shape)}")
    for size, least in zip(wanted, source, strict=True):
        op.require_at_most(op.arithmetic.simplify(least), size, "room_for_the_pooled_image")
    last = op.arithmetic.simplify(op.arithmetic.product(source) - 1)
    op.state(1, shape)
    places = at_most(op, 1, last, "the place of an element")
    return op.te(
        lambda x, places, dims: unpool(x, places, dims[: rank + 2], dims[rank + 2 :]),
        op.x(0), places, dims=[*source, *wanted],
    )  # fmt: skip
