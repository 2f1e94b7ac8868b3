"""The one layout of a GPU besides NCHW: all channels of a pixel together, in whole 16-byte chunks.

Convolutions on Tensor Cores copy 16 bytes at a time (`tir_schedules/cuda/shared_tile.py`): so many
channels lie side by side, and where there are fewer, such as the three of an image, zeros fill up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.layout.lanes import Lanes, fill_up
from relax_passes.lowering.rule import dtype_of

BYTES = frozenset({"int8", "uint8"})  # whose products are summed in int32
_FLOATS = frozenset({"float32", "float16", "bfloat16"})
_CHUNK_BYTES = 16


@dataclass(frozen=True)
class ChannelsLast(Lanes):
    """Blocks of all channels; `count` channels are a chunk."""

    one_block: ClassVar[bool] = True
    types: ClassVar[frozenset[str]] = _FLOATS | BYTES | {"int32"}
    convolved: ClassVar[frozenset[str]] = _FLOATS | BYTES

    def choose(self, channels: int) -> int:
        """Return the channels and what fills up their last chunk."""
        return channels + fill_up(channels, self.count) if self.fill_up else channels

    def choose_even(self, channels: int) -> int:
        """Return the block that is filled up by nothing."""
        return channels

    def blocks(self, channels: int) -> list[int]:
        """Return the one block there is."""
        return [self.choose(channels)]

    def is_channels_last(self, block: int) -> bool:
        """Return that every kernel works on such blocks."""
        return False

    def registers(self, channels: int, block: int) -> float:
        """Return a measure of work; there is one block to choose from."""
        return channels / self.count


def chunk_of_channels(mod: tvm.IRModule) -> int:
    """Return how many channels fill a chunk.

    They are those of the narrowest floats in a module, or of bytes, where it convolves those.
    """
    found, convolved = {"float32"}, set()

    def visit(var: relax.Var) -> None:
        if isinstance(var.ty, relax.TensorType):
            found.add(dtype_of(var))

    def convolution(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") == "relax.nn.conv2d":
            convolved.add(dtype_of(call.args[0]))

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            for param in func.params:
                visit(param)
            rules = [(relax.Var, visit), (tvm.ir.Call, convolution)]
            tvm_ffi.structural_walk(func.body, rules, order="pre")
    if convolved & BYTES:
        return _CHUNK_BYTES
    half = found & {"float16", "bfloat16"}
    return _CHUNK_BYTES // (2 if half else 4)
