"""Sizes of sliding windows: explicit and automatic padding, output lengths (ONNX Conv and Pool)."""

from __future__ import annotations

from dataclasses import dataclass

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx.dims import Dim, is_static
from frontends.onnx.op import Op


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes, one entry an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def padding(self) -> list[int]:
        """Return the padding as Relax wants it: all begins, then all ends."""
        return [*self.begin, *self.end]

    def extent(self, axis: int) -> int:
        """Return how many elements the dilated kernel spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1


def read_window(op: Op, kernel: tuple[int, ...], spatial: tuple[Dim, ...]) -> Window:
    """Read strides, dilations and pads of a node, and resolve `auto_pad`."""
    rank = len(kernel)
    strides = tuple(op.attr("strides") or [1] * rank)
    dilations = tuple(op.attr("dilations") or [1] * rank)
    pads = list(op.attr("pads") or [0] * (2 * rank))
    auto = op.attr("auto_pad", "NOTSET") or "NOTSET"
    if not len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise InvalidModel("strides, dilations, pads and the kernel differ in rank")
    if len(spatial) != rank:
        raise InvalidModel(f"a kernel of rank {rank} over {len(spatial)} spatial axes")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * (2 * rank)
        for axis in range(rank):
            total = same_padding(
                spatial[axis], (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
            )
            small, big = total // 2, total - total // 2
            pads[axis], pads[rank + axis] = (small, big) if auto == "SAME_UPPER" else (big, small)
    elif auto == "VALID":
        pads = [0] * (2 * rank)
    return Window(tuple(kernel), strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))


def same_padding(length: Dim, extent: int, stride: int) -> int:
    """Return the padding of one axis that makes the output ceil(length / stride) long."""
    if stride == 1:
        return max(extent - 1, 0)
    if not is_static(length):
        raise UnsupportedOperator("auto_pad SAME over a symbolic size with a stride")
    outputs = -(-int(length) // stride)
    return max((outputs - 1) * stride + extent - int(length), 0)


def ceil_end_padding(window: Window, spatial: tuple[Dim, ...]) -> tuple[int, ...]:
    """Return end padding with which rounding down gives the length that `ceil_mode` asks for.

    A window that would start in the end padding is dropped, as ONNX and PyTorch specify.
    """
    ends = []
    for axis, length in enumerate(spatial):
        stride, extent = window.strides[axis], window.extent(axis)
        if stride == 1:
            ends.append(window.end[axis])
            continue
        if not is_static(length):
            raise UnsupportedOperator("ceil_mode over a symbolic size")
        padded = int(length) + window.begin[axis] + window.end[axis]
        outputs = -(-(padded - extent) // stride) + 1
        if (outputs - 1) * stride >= int(length) + window.begin[axis]:
            outputs -= 1
        needed = (outputs - 1) * stride + extent - int(length) - window.begin[axis]
        ends.append(max(needed, window.end[axis]))
    return tuple(ends)
