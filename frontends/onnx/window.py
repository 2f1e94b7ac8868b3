"""Sizes of sliding windows: explicit and automatic padding, output lengths (ONNX Conv and Pool)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from frontends.dims import Dim, DimArithmetic, all_static, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import read_sizes
from frontends.onnx.value import Value, dim_array


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes, one entry an axis; padding may be symbolic."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[Dim, ...]
    end: tuple[Dim, ...]
    automatic: bool = False

    @property
    def padding(self) -> list[int]:
        """Return the padding, which must be static, as Relax wants it: begins, then ends."""
        return [int(width) for width in (*self.begin, *self.end)]

    @property
    def is_static(self) -> bool:
        """Tell whether the padding is known now."""
        return all_static((*self.begin, *self.end))

    def extent(self, axis: int) -> int:
        """Return how many elements the dilated kernel spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def outputs(
        self, arithmetic: DimArithmetic, spatial: tuple[Dim, ...], *, ceil: bool = False
    ) -> tuple[Dim, ...]:
        """Return the number of windows along each axis.

        Args:
            arithmetic: Arithmetic on symbolic sizes.
            spatial: The input's sizes.
            ceil: Count a last window that is cut off, unless it starts in the end padding. The
                specification defines automatic padding so that this changes nothing.

        Raises:
            InvalidModel: If no window fits an axis of known size. Where only a run knows the size,
                the result is empty, or of a negative size and refused.
        """
        sizes = []
        for axis, length in enumerate(spatial):
            stride = self.strides[axis]
            room = length + self.begin[axis] + self.end[axis] - self.extent(axis)
            if ceil and not self.automatic:
                count = floordiv(arithmetic, arithmetic.simplify(room + stride - 1), stride) + 1
                starts = arithmetic.truncdiv(length + self.begin[axis] + stride - 1, stride)
                count = arithmetic.minimum(arithmetic.simplify(count), starts)
            else:
                count = floordiv(arithmetic, arithmetic.simplify(room), stride) + 1
            count = arithmetic.simplify(count)
            if is_static(count) and count < 1:
                raise InvalidModel(
                    f"a window of {self.extent(axis)} does not fit spatial axis {axis} of {length}"
                    f" with padding {self.begin[axis]} and {self.end[axis]}"
                )
            sizes.append(count)
        return tuple(sizes)


def read_window(op: Op, kernel: tuple[int, ...], spatial: tuple[Dim, ...]) -> Window:
    """Read strides, dilations and pads of a node, and resolve `auto_pad`."""
    rank = len(kernel)
    strides = tuple(op.attr("strides") or [1] * rank)
    dilations = tuple(op.attr("dilations") or [1] * rank)
    pads: list[Dim] = list(op.attr("pads") or [0] * (2 * rank))
    auto = op.attr("auto_pad", "NOTSET") or "NOTSET"
    if not len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise InvalidModel("strides, dilations, pads and the kernel differ in rank")
    if len(spatial) != rank:
        raise InvalidModel(f"a kernel of rank {rank} over {len(spatial)} spatial axes")
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise InvalidModel("strides, dilations and kernel sizes must be positive")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(rank):
            total = same_padding(
                op.arithmetic,
                spatial[axis],
                (kernel[axis] - 1) * dilations[axis] + 1,
                strides[axis],
            )
            small = op.arithmetic.truncdiv(total, 2)
            big = op.arithmetic.simplify(total - small)
            pads[axis], pads[rank + axis] = (small, big) if auto == "SAME_UPPER" else (big, small)
    elif auto == "VALID":
        pads = [0] * (2 * rank)
    begin, end = tuple(pads[:rank]), tuple(pads[rank:])
    return Window(tuple(kernel), strides, dilations, begin, end, auto != "NOTSET")


def same_padding(arithmetic: DimArithmetic, length: Dim, extent: int, stride: int) -> Dim:
    """Return the padding of one axis that makes the output ceil(length / stride) long."""
    if stride == 1:
        return max(extent - 1, 0)
    outputs = arithmetic.truncdiv(length + stride - 1, stride)
    needed = arithmetic.simplify((outputs - 1) * stride + extent - length)
    return arithmetic.maximum(needed, 0)


def floordiv(arithmetic: DimArithmetic, left: Dim, right: int) -> Dim:
    """Divide rounding down, as Relax deduces the sizes of its own operators."""
    if is_static(left):
        return int(left) // right
    return arithmetic.simplify(tirx.floordiv(prim(left), prim(right)))


def named_sizes(op: Op, dims: Sequence[Dim]) -> list[Dim]:
    """Return sizes with a fresh symbol, read at run time, in place of each compound expression.

    A kernel repeats its sizes in every index: with the expressions it would compile for seconds.
    """
    compound = [not is_static(dim) and not isinstance(dim, tirx.Var) for dim in dims]
    if not any(compound):
        return list(dims)
    op.inputs.append(Value.of_dims("sizes", dim_array(list(dims))))
    try:
        vector = op.x(len(op.inputs) - 1)
    finally:
        op.inputs.pop()
    read = read_sizes(op, vector)
    return [new if named else dim for dim, new, named in zip(dims, read, compound, strict=True)]
