"""Which algorithm computes a 3x3 convolution of stride 1: the direct sum or Winograd's."""

from __future__ import annotations

from dataclasses import dataclass

from tir_schedules.llvm.conv_tile import ConvSizes, choose_conv_tile, cycles
from tir_schedules.llvm.winograd_matrices import winograd
from tir_schedules.llvm.winograd_tile import WinogradSizes, choose_winograd_tile, winograd_cycles
from tir_schedules.machine import Machine

# Winograd's kernels must save this share: they hold more weights, and their cost is less certain.
_WORTH = 0.9
# The rounding error of a direct sum that its fewer products may be traded for.
MAX_ERROR_GROWTH = 4.0
_OUTPUTS = (2, 4)


@dataclass(frozen=True)
class ConvAlgorithm:
    """The question (`tir_schedules.questions`) which m of Winograd's F(m, 3), or None, is faster.

    The fields are the arguments of `choose_winograd`.
    """

    images: int
    channels: int
    blocks: int
    lanes: int
    out_size: tuple[int, int]

    def options(self, machine: Machine) -> list[int | None]:
        """Return the cost model's choice and all others of a tolerable error."""
        chosen = choose_winograd(
            self.images, self.channels, self.blocks, self.lanes, self.out_size, machine
        )
        return [chosen, *(m for m in (None, *_tolerable()) if m != chosen)]


def choose_winograd(
    images: int, channels: int, blocks: int, lanes: int, out_size: tuple[int, int], machine: Machine
) -> int | None:
    """Return m of the Winograd F(m, 3) that is faster than the direct sum, None if none is.

    Args:
        images: Images in the batch.
        channels: Input channels.
        blocks: Blocks of output channels.
        lanes: Channels of a block, those of a vector register.
        out_size: Rows and columns of the result.
        machine: The processor; its cores share the work.
    """
    pixels = out_size[0] * out_size[1]
    sizes = ConvSizes(blocks, lanes, pixels, 9 * channels, 4 * channels * pixels, images)
    best = cycles(sizes, choose_conv_tile(sizes, machine), machine) * _WORTH
    chosen = None
    for outputs in _tolerable():  # a larger tile must again be worth its weights and its error
        tiles = -(-out_size[0] // outputs) * -(-out_size[1] // outputs)
        winograd_sizes = WinogradSizes(images, channels, blocks, lanes, tiles, outputs)
        tile = choose_winograd_tile(winograd_sizes, machine)
        cost = winograd_cycles(winograd_sizes, tile, machine)
        if cost < best:
            best, chosen = cost * _WORTH, outputs
    return chosen


def _tolerable() -> list[int]:
    return [m for m in _OUTPUTS if winograd(m).error_growth <= MAX_ERROR_GROWTH]
