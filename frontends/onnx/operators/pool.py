"""Pooling."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.unpool import max_unpool as unpool
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.window import Window, ceil_end_padding, read_window

_MAX = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
_AVERAGE = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}


def _window(op: Op) -> Window:
    """Read the window; `ceil_mode` becomes longer end padding, so that pools round down."""
    kernel = tuple(op.attr("kernel_shape"))
    spatial = op.shape()[2:]
    window = read_window(op, kernel, spatial)
    if op.attr("ceil_mode", 0):
        end = ceil_end_padding(window, spatial)
        window = Window(window.kernel, window.strides, window.dilations, window.begin, end)
    if len(kernel) not in _MAX:
        raise op.unsupported(f"{len(kernel)} spatial dimensions")
    return window


@converter("MaxPool")
def max_pool(op: Op) -> relax.Expr | tuple[relax.Expr, relax.Expr]:
    """Return window maxima and, if asked for, their flat indices."""
    window = _window(op)
    values = _MAX[len(window.kernel)](
        op.x(), window.kernel, window.strides, window.padding, window.dilations
    )
    if len(op.node.output) < 2 or not op.node.output[1]:
        return values
    return values, _max_indices(op, window, op.emit(values))


def _max_indices(op: Op, window: Window, values: relax.Expr) -> relax.Expr:
    """Emit the place of each maximum in the whole tensor: the first one in the window."""
    column_major = bool(op.attr("storage_order", 0))
    spatial = op.shape()[2:]

    def compute(x: te.Tensor, maxima: te.Tensor) -> te.Tensor:
        taps = list(np.ndindex(*window.kernel))

        def flat(place: tuple[tirx.Expr, ...]) -> tirx.Expr:
            order = range(len(spatial))
            offset = tirx.IntImm("int64", 0)
            for axis in reversed(order) if column_major else order:
                offset = offset * x.shape[2 + axis] + place[axis]
            return offset

        def pick(n: tirx.Var, c: tirx.Var, *out: tirx.Var) -> tirx.Expr:
            chosen = tirx.IntImm("int64", 0)
            base = n * x.shape[1] + c
            for size in x.shape[2:]:
                base = base * size
            for tap in reversed(taps):
                place = tuple(
                    out[a] * window.strides[a] + tap[a] * window.dilations[a] - window.begin[a]
                    for a in range(len(tap))
                )
                inside = tirx.all(
                    *(tirx.all(place[a] >= 0, place[a] < x.shape[2 + a]) for a in range(len(tap)))
                )
                safe = [tirx.max(tirx.min(p, x.shape[2 + a] - 1), 0) for a, p in enumerate(place)]
                hit = tirx.all(inside, x(n, c, *safe) == maxima(n, c, *out))
                chosen = tirx.Select(hit, flat(place), chosen)
            return base + chosen

        return te.compute(maxima.shape, pick, name="max_indices")

    return op.te(compute, op.x(), values, name="max_pool_indices")


@converter("AveragePool")
def average_pool(op: Op) -> relax.Expr:
    """Average each window; `count_include_pad` counts the padding that the node states."""
    window, x = _window(op), op.x()
    include = bool(op.attr("count_include_pad", 0))
    if include and op.attr("ceil_mode", 0):
        # Padding added for ceil_mode does not count: pad what counts explicitly.
        stated = read_window(op, window.kernel, op.shape()[2:])
        widths = [0, 0, 0, 0]
        for before, after in zip(stated.begin, stated.end, strict=True):
            widths += [before, after]
        x = op.emit(R.nn.pad(x, widths))
        left = tuple(end - used for end, used in zip(window.end, stated.end, strict=True))
        window = Window(window.kernel, window.strides, window.dilations, (0,) * len(left), left)
        include = False
    return _AVERAGE[len(window.kernel)](
        x,
        window.kernel,
        window.strides,
        window.padding,
        window.dilations,
        count_include_pad=include,
    )


@converter("LpPool")
def lp_pool(op: Op) -> relax.Expr:
    """Return the p-norm of each window."""
    window, p = _window(op), float(op.attr("p", 2))
    powers = op.emit(R.power(op.emit(R.abs(op.x())), op.const(p)))
    means = op.emit(
        _AVERAGE[len(window.kernel)](
            powers,
            window.kernel,
            window.strides,
            window.padding,
            window.dilations,
            count_include_pad=True,
        )
    )
    total = op.emit(R.multiply(means, op.const(float(np.prod(window.kernel)))))
    return R.power(total, op.const(1.0 / p))


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
    powers = op.emit(R.power(op.emit(R.abs(op.x())), op.const(p)))
    total = op.emit(R.sum(powers, list(range(2, op.ndim())), True))
    return R.power(total, op.const(1.0 / p))


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
    wanted = op.runtime_dims(2) if op.has(2) else source
    if len(wanted) != len(shape):
        raise InvalidModel(f"an output shape of rank {len(wanted)} for rank {len(shape)}")
    return op.te(
        lambda x, places, dims: unpool(x, places, dims[: rank + 2], dims[rank + 2 :]),
        op.x(0), op.x(1), dims=[*source, *wanted],
    )  # fmt: skip
