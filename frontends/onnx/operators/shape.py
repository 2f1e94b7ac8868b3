"""Shapes and rearrangement: Shape, Reshape, Transpose, Concat, Split, Expand, Tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations import run_time_dims
from frontends.computations.broadcast import broadcast_loosely
from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import Dim, all_static, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.run_time_size import read_sizes, refusing
from frontends.onnx.registry import converter
from frontends.onnx.symbols import MOST_ELEMENTS
from frontends.onnx.value import Value, dim_array


@converter("Shape")
def shape(op: Op) -> Value:
    """Return the shape as shape value: nothing is computed at run time."""
    dims = op.shape()
    start, end = op.attr("start", 0), op.attr("end")
    return Value.of_dims(op.title, dim_array(list(dims[start:end])))


@converter("Size")
def size(op: Op) -> Value:
    """Return the number of elements as shape value."""
    return Value.of_dims(op.title, dim_array([op.arithmetic.product(op.shape())], ()))


def reshape_to(op: Op, x: relax.Expr, dims: list[Dim]) -> relax.Expr:
    """Emit a reshape, or nothing if the shape is the same already."""
    current = list(x.ty.shape.values)
    if len(current) == len(dims) and all(
        op.arithmetic.equal(have, want) for have, want in zip(current, dims, strict=True)
    ):
        return x
    return exact_reshape(x, relax.ShapeExpr(dims))


@converter("Reshape")
def reshape(op: Op) -> Any:
    """Reshape; 0 keeps a dimension (unless `allowzero`), -1 takes what is left."""
    have = op.shape()
    if op.opset < 5:
        wanted: list[Dim] = list(op.attr("shape"))
    else:
        known = op.dims(1)
        if known is None:
            if not is_static(op.shape(1)[0]):
                raise op.unsupported("a shape of unknown length: the result has no rank")
            return _reshape_at_run_time(op)
        wanted = known
    if not op.attr("allowzero", 0):
        for axis, dim in enumerate(wanted):
            if is_static(dim) and dim == 0:
                if axis >= len(have):
                    raise InvalidModel(f"0 in dimension {axis} of the new shape copies nothing")
                wanted[axis] = have[axis]
            elif axis < len(have) and not op.arithmetic.equal(dim, have[axis]):
                _state_that_it_copies_nothing(op, axis, dim)
    rest = [axis for axis, dim in enumerate(wanted) if is_static(dim) and dim == -1]
    if len(rest) > 1:
        raise InvalidModel("more than one -1 in the new shape")
    total = op.arithmetic.product(have)
    if rest:
        known = op.arithmetic.product(dim for axis, dim in enumerate(wanted) if axis != rest[0])
        if is_static(known) and known == 0:
            wanted[rest[0]] = 0
        else:
            # Where the shape holds, the division has no rest.
            wanted[rest[0]] = op.arithmetic.truncdiv(total, known)
    product = op.arithmetic.product(wanted)
    if is_static(total) and is_static(product) and total != product:
        raise InvalidModel(f"{total} elements do not fit the shape {wanted}")
    return reshape_to(op, op.x(), wanted)


def _state_that_it_copies_nothing(op: Op, axis: int, dim: Dim) -> None:
    """State that a computed size is no 0 that stands for the input's size on this axis.

    That size in its place would hide from the passes what every usual call computes. A size such as
    `c // 2` is 0 for c = 1; one that is 0 only with a symbol is that of an empty tensor.
    """
    if not op.arithmetic.positive_where_symbols_are(dim):
        total = prim(op.arithmetic.product(op.shape()))
        op.require(tirx.any(prim(dim) != 0, total == 0), f"computed_0_would_copy_axis_{axis}")


def _reshape_at_run_time(op: Op) -> relax.Expr:
    """Reshape to a shape that the program computes; its 0 and -1 are resolved by a kernel."""
    if op.shape(1) == (0,):
        return reshape_to(op, op.x(), [])
    copy_zeros = not op.attr("allowzero", 0)

    def compute(wanted: te.Tensor, have: list[Any] | None = None) -> te.Tensor:
        return run_time_dims.reshaped_dims(wanted, have or [], copy_zeros)

    wanted = refusing(op, op.x(1), -1, "more than one -1 in the new shape", most=1)
    dims = op.te(compute, wanted, name="reshaped_dims", dims=op.shape())
    return reshape_to(op, op.x(), read_sizes(op, dims))


@converter("Flatten")
def flatten(op: Op) -> relax.Expr:
    """Make a matrix: the axes before `axis` are the rows."""
    axis = int(op.attr("axis", 1))
    axis = axis + op.ndim() if axis < 0 else axis
    rows = op.arithmetic.product(op.shape()[:axis])
    columns = op.arithmetic.product(op.shape()[axis:])
    return reshape_to(op, op.x(), [rows, columns])


@converter("Squeeze", since=1)
def squeeze_attribute(op: Op) -> relax.Expr:
    """Drop axes of size 1, listed by an attribute (opset 1 to 12)."""
    return _squeeze(op, op.axes(None))


@converter("Squeeze", since=13)
def squeeze_input(op: Op) -> relax.Expr:
    """Drop axes of size 1, listed by an input (opset 13 on)."""
    if op.has(1) and op.constant(1) is None:
        count = op.shape(1)[0]
        if not is_static(count):
            raise op.unsupported("axes of unknown number")
        if count == op.ndim():
            return reshape_to(op, op.x(), [])
        dims = op.te(
            run_time_dims.squeezed_dims,
            indices_within(op, 1, [op.ndim()]),
            name="squeezed_dims",
            dims=op.shape(),
        )
        return reshape_to(op, op.x(), read_sizes(op, dims))
    return _squeeze(op, op.axes(1))


def _squeeze(op: Op, axes: list[int] | None) -> relax.Expr:
    dims = op.shape()
    if axes is None:
        axes = [axis for axis, dim in enumerate(dims) if is_static(dim) and dim == 1]
        for axis, dim in enumerate(dims):
            if not is_static(dim):  # an axis of size 1 would go, and the result have another rank
                op.require(prim(dim) != 1, f"keeps_axis_{axis}_that_is_not_1")
    for axis in axes:
        if is_static(dims[axis]) and dims[axis] != 1:
            raise InvalidModel(f"axis {axis} has size {dims[axis]}, not 1")
    return reshape_to(op, op.x(), [dim for axis, dim in enumerate(dims) if axis not in axes])


@converter("Unsqueeze", since=1)
def unsqueeze_attribute(op: Op) -> relax.Expr:
    """Insert axes of size 1, listed by an attribute (opset 1 to 12)."""
    return _unsqueeze(op, op.required("axes"))


@converter("Unsqueeze", since=13)
def unsqueeze_input(op: Op) -> relax.Expr:
    """Insert axes of size 1, listed by an input (opset 13 on)."""
    if op.constant(1) is None:
        if not is_static(op.shape(1)[0]):
            raise op.unsupported("axes of unknown number")
        if op.ndim() == 0:
            return reshape_to(op, op.x(), [1] * op.shape(1)[0])
        dims = op.te(
            run_time_dims.unsqueezed_dims,
            indices_within(op, 1, [op.ndim() + int(op.shape(1)[0])]),
            name="unsqueezed_dims",
            dims=op.shape(),
        )
        return reshape_to(op, op.x(), read_sizes(op, dims))
    return _unsqueeze(op, op.ints(1, "axes"))


def _unsqueeze(op: Op, axes: list[int]) -> relax.Expr:
    rank = op.ndim() + len(axes)
    places = sorted(normalize_axis(axis, rank) for axis in axes)
    dims = list(op.shape())
    for place in places:
        dims.insert(place, 1)
    return reshape_to(op, op.x(), dims)


@converter("Transpose")
def transpose(op: Op) -> relax.Expr:
    """Permute axes; the default reverses them."""
    axes = op.attr("perm") or list(reversed(range(op.ndim())))
    if sorted(axes) != list(range(op.ndim())):
        raise InvalidModel(f"perm {axes} does not list the axes of a tensor of rank {op.ndim()}")
    return R.permute_dims(op.x(), axes)


@converter("Concat")
def concat(op: Op) -> Any:
    """Join along an axis. Empty parts fall away, whatever their other sizes, if any part is not."""
    axis = op.axis(1)
    places = list(range(len(op.inputs)))
    parts = [place for place in places if 0 not in _static_dims(op.shape(place))] or places
    if len(parts) == 1:
        return op.value(parts[0])
    return R.concat([op.x(place) for place in parts], axis)


def _static_dims(dims: tuple[Dim, ...]) -> list[int]:
    return [int(dim) for dim in dims if is_static(dim)]


@converter("Split", since=1)
def split_attribute(op: Op) -> list[relax.Expr]:
    """Cut along an axis into sizes listed by an attribute (opset 1 to 12)."""
    return _split(op, op.attr("split"))


@converter("Split", since=13)
def split_input(op: Op) -> list[relax.Expr]:
    """Cut along an axis into sizes listed by an input, or into equal parts (opset 13 on)."""
    return _split(op, op.runtime_dims(1, len(op.node.output)) if op.has(1) else None)


def _split(op: Op, sizes: list[Dim] | None) -> list[relax.Expr]:
    axis, outputs = op.axis(0), len(op.node.output)
    if op.has_attr("num_outputs") and op.count("num_outputs") != outputs:
        raise InvalidModel(f"num_outputs is {op.attr('num_outputs')}, the node has {outputs}")
    length = op.shape()[axis]
    if sizes is None:
        if is_static(length):
            each = -(-int(length) // outputs)
            sizes = [each] * (outputs - 1) + [int(length) - each * (outputs - 1)]
        elif op.opset < 18:  # the parts are equal
            sizes = [op.arithmetic.truncdiv(length, outputs)] * outputs
        else:
            each = op.arithmetic.truncdiv(length + (outputs - 1), outputs)
            rest = op.arithmetic.simplify(length - each * (outputs - 1))
            sizes = [each] * (outputs - 1) + [rest]
    if len(sizes) != outputs:
        raise InvalidModel(f"{len(sizes)} sizes for {outputs} outputs")
    total = op.arithmetic.simplify(sum(sizes))
    if op.has(1):
        op.require_equal(total, length, "sizes_add_up")
    if outputs == 1:
        return [op.x()]
    if all_static(sizes) and is_static(length) and min(sizes) > 0:
        places = [int(place) for place in np.cumsum(sizes)[:-1]]
        parts = op.emit(R.split(op.x(), places, axis))
        return [parts[number] for number in range(outputs)]
    results, start = [], 0
    for part in sizes:
        stop = op.arithmetic.simplify(start + part)
        results.append(slice_axis(op, op.x(), axis, start, part, 1))
        start = stop
    return results


def slice_axis(op: Op, x: relax.Expr, axis: int, start: Dim, length: Dim, step: int) -> relax.Expr:
    """Emit x[start : start + length * step : step] on one axis; bounds may be symbolic."""

    def compute(data: te.Tensor, bounds: list[Any]) -> te.Tensor:
        first, count = bounds
        dims = list(data.shape)
        dims[axis] = count

        def pick(*place: Any) -> Any:
            moved = list(place)
            moved[axis] = first + place[axis] * step
            return data(*moved)

        return te.compute(dims, pick, name="slice")

    return op.te(compute, x, name="slice", dims=[start, length])


@converter("Expand")
def expand(op: Op) -> Any:
    """Broadcast with a shape, both ways: the tensor may be larger than the shape, too."""
    common, _ = op.builder.sizes.common_dims(
        [op.shape(), op.runtime_dims(1)], op.title, related_are_equal=False
    )
    have = [1] * (len(common) - op.ndim()) + list(op.shape())
    pairs = list(zip(have, common, strict=True))
    if len(common) == op.ndim() and all(op.arithmetic.equal(*pair) for pair in pairs):
        return op.value(0)
    if all(is_static(left) or op.arithmetic.equal(left, right) for left, right in pairs):
        return R.broadcast_to(op.x(), relax.ShapeExpr(common))
    return op.te(broadcast_loosely, op.x(), name="expand", dims=common)


@converter("Tile", since=1)
def tile_along_axis(op: Op) -> relax.Expr:
    """Repeat the whole tensor `tiles` times along one axis, both inputs numbers (opset 1 to 5)."""
    (count,), (axis,) = op.ints(1, "number of tiles"), op.ints(2, "axis")
    repeats = [1] * op.ndim(0)
    repeats[normalize_axis(axis, len(repeats))] = count
    return _tile(op, repeats)


@converter("Tile", since=6)
def tile(op: Op) -> relax.Expr:
    """Repeat the whole tensor along each axis."""
    return _tile(op, op.runtime_dims(1, op.ndim()))


def _tile(op: Op, repeats: list[Dim]) -> relax.Expr:
    for size, count in zip(op.shape(), repeats, strict=True):
        # Relax multiplies in 64 bits without looking.
        least = max(int(size), 1) if is_static(size) else 1
        if is_static(count) and least * int(count) > MOST_ELEMENTS:
            raise InvalidModel(f"no memory holds {count} times an axis of {size}")
    if all_static(repeats) and all(int(count) > 0 for count in repeats):
        return R.tile(op.x(), [int(count) for count in repeats])

    def compute(x: te.Tensor, counts: list[Any]) -> te.Tensor:
        dims = [size * count for size, count in zip(x.shape, counts, strict=True)]
        return te.compute(
            dims,
            lambda *i: x(
                *(tirx.floormod(p, tirx.max(s, 1)) for p, s in zip(i, x.shape, strict=True))
            ),
            name="tile",
        )

    return op.te(compute, op.x(), dims=repeats)


@converter("ConstantOfShape")
def constant_of_shape(op: Op) -> relax.Expr:
    """Fill a shape with one number."""
    value = op.attr("value")
    number = np.zeros((), "float32") if value is None else np.asarray(value).reshape(())
    return R.full(
        relax.ShapeExpr(op.runtime_dims(0)), op.const(number, str(number.dtype)), str(number.dtype)
    )


@converter("EyeLike")
def eye_like(op: Op) -> relax.Expr:
    """Return ones on a diagonal."""
    import onnx

    kind = op.attr("dtype")
    dtype = op.dtype() if kind is None else str(onnx.helper.tensor_dtype_to_np_dtype(kind))
    offset = int(op.attr("k", 0))
    return op.te(
        lambda dims: te.compute(dims, lambda i, j: (j - i == offset).astype(dtype), name="eye"),
        dims=op.shape(),
    )


@converter("DepthToSpace")
def depth_to_space(op: Op) -> relax.Expr:
    """Move channels into blocks of pixels."""
    n, c, h, w = op.shape()
    block = op.count("blocksize")
    left = op.arithmetic.truncdiv(c, block * block)
    if op.attr("mode", "DCR") == "DCR":
        split, axes = [n, block, block, left, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split, axes = [n, left, block, block, h, w], [0, 1, 4, 2, 5, 3]
    x = op.emit(exact_reshape(op.x(), relax.ShapeExpr(split)))
    x = op.emit(R.permute_dims(x, axes))
    return exact_reshape(x, relax.ShapeExpr([n, left, h * block, w * block]))


@converter("SpaceToDepth")
def space_to_depth(op: Op) -> relax.Expr:
    """Move blocks of pixels into channels."""
    n, c, h, w = op.shape()
    block = op.count("blocksize")
    rows, columns = op.arithmetic.truncdiv(h, block), op.arithmetic.truncdiv(w, block)
    x = op.emit(exact_reshape(op.x(), relax.ShapeExpr([n, c, rows, block, columns, block])))
    depth_first = op.attr("mode", "DCR") == "DCR"  # an attribute since opset 28
    x = op.emit(R.permute_dims(x, [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4]))
    return exact_reshape(x, relax.ShapeExpr([n, c * block * block, rows, columns]))
