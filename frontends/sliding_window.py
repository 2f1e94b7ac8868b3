"""Sizes of sliding windows: what they span, and how many there are along each axis."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from frontends.dims import Dim, DimArithmetic, all_static, is_static, prim
from frontends.errors import InvalidModel


@dataclass(frozen=True)
class Window:
    """A window over the spatial axes, one entry an axis; kernel and padding may be symbolic."""

    kernel: tuple[Dim, ...]
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

    def extent(self, axis: int) -> Dim:
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


def floordiv(arithmetic: DimArithmetic, left: Dim, right: int) -> Dim:
    """Divide rounding down, as Relax deduces the sizes of its own operators."""
    if is_static(left):
        return int(left) // right
    return arithmetic.simplify(tirx.floordiv(prim(left), prim(right)))
