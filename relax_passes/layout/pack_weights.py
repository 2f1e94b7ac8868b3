"""Pack the kernels of convolutions for blocked layouts: constants now, others when the model runs.

Both ways give the same elements in the same places, so that a convolution is one kernel wherever
its weight comes from, and its result the same to the bit.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.blocked import pack_kernel
from relax_passes.layout.lanes import fill_up
from relax_passes.layout.transposed_convolution import AxisPhases, phase_kernel
from relax_passes.lowering.rule import static_shape


class WeightPacking:
    """Packs weights of static shape; a constant one is packed once for all its readers.

    Attributes:
        at_run_time: How many weights are packed in each run.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._packed: dict[tuple[tvm.ir.GenericConst, int, int], relax.Expr] = {}
        self.at_run_time = 0

    def kernel(self, weight: relax.Expr, in_block: int, out_block: int) -> relax.Expr:
        """Return a kernel OIHW in the layout OIHW[in_block]i[out_block]o, zeros filling up."""
        if isinstance(weight, tvm.ir.GenericConst):
            key = (weight, in_block, out_block)
            if key not in self._packed:
                packed = pack_kernel(array_of(weight), in_block, out_block)
                self._packed[key] = constant_from(packed)
            return self._packed[key]
        self.at_run_time += 1
        return self._blocks(weight, in_block, out_block)

    def phases(
        self, weight: relax.Expr, y: AxisPhases, x: AxisPhases, in_block: int, out_block: int
    ) -> relax.Expr:
        """Return the kernel IOHW of a transposed convolution as that of all its phases, packed.

        See `transposed_convolution.phase_kernel`.
        """
        if isinstance(weight, tvm.ir.GenericConst):
            return constant_from(
                pack_kernel(phase_kernel(array_of(weight), y, x), in_block, out_block)
            )
        self.at_run_time += 1
        i, o, kh, kw = _sizes(weight)
        below, beside = y.taps * y.stride - kh, x.taps * x.stride - kw
        full = weight
        if below or beside:
            full = self._emit(relax.op.nn.pad(weight, [0, 0, 0, 0, 0, below, 0, beside]))
        split = self._emit(relax.op.reshape(full, [i, o, y.taps, y.stride, x.taps, x.stride]))
        for axis, taps in ((2, y.taps), (4, x.taps)):
            if taps > 1:
                split = self._emit(relax.op.flip(split, axis))
        moved = self._emit(relax.op.permute_dims(split, [3, 5, 1, 0, 2, 4]))
        kernel = relax.op.reshape(moved, [y.stride * x.stride * o, i, y.taps, x.taps])
        return self._blocks(self._emit(kernel), in_block, out_block)

    def _blocks(self, weight: relax.Expr, in_block: int, out_block: int) -> relax.Expr:
        o, i, kh, kw = _sizes(weight)
        more = fill_up(o, out_block), fill_up(i, in_block)
        if any(more):
            weight = self._emit(relax.op.nn.pad(weight, [0, more[0], 0, more[1], 0, 0, 0, 0]))
            o, i = o + more[0], i + more[1]
        shape = [o // out_block, out_block, i // in_block, in_block, kh, kw]
        tiles = self._emit(relax.op.reshape(weight, shape))
        return self._emit(relax.op.permute_dims(tiles, [0, 2, 4, 5, 3, 1]))

    def _emit(self, value: relax.Expr) -> relax.Var:
        return self._builder.emit(value)


def _sizes(weight: relax.Expr) -> list[int]:
    shape = static_shape(weight)
    assert shape is not None, "the layout pass asks for weights of static shape"
    return [int(size) for size in shape]
