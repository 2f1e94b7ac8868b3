"""Mix the channels of a small image before it is enlarged, not after.

    conv1x1(resize(x), a)               =  resize(conv1x1(x, a))
    conv1x1(concat(resize(x), y), a|b)  =  resize(conv1x1(x, a)) + conv1x1(y, b)

Resampling is linear and treats all channels alike, a convolution of one pixel is linear and treats
all pixels alike: they commute. Feature pyramids (Lin et al., CVPR 2017), SegFormer and YOLO enlarge
maps, join them, and mix the channels of the large result; each map mixed at its own size takes a
part of the multiplications. The bias is a sum of its own, and stays behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.channelwise_map import ChannelwiseMap, channelwise_map
from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.readers import count_readers
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.layout.blocked import dims_of, has_channels
from relax_passes.layout.demand import CYCLES_PER_ELEMENT
from relax_passes.linear_operators import has_usual_layout
from relax_passes.lowering.rule import is_float32
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions
from tir_schedules.machine import Machine

NAME = "convolve_before_resampling"
_NOMINAL_SIZE = 512  # what a symbolic size counts as


@graph_pass(name=NAME, phase="rewrite")
def convolve_before_resampling(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Move 1x1 convolutions before the enlarging of their input."""
    if ctx.precision == "strict":
        ctx.log.decline(NAME, "every convolution", 'precision "strict" keeps the order of sums')
        return mod, False
    rewriter = _Exchange(mod, ctx.machine)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(
        NAME,
        f"moved {rewriter.count} convolutions before resampling, "
        f"{rewriter.saved:.3g} of their multiplications saved",
    )
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Part:
    """A range of a convolution's input channels: `source`, then the maps that made it large."""

    value: relax.Expr
    source: relax.Expr
    maps: tuple[ChannelwiseMap, ...]  # the last one first


@mutator
class _Exchange(CallRewriter):
    def __init__(self, mod: tvm.IRModule, machine: Machine) -> None:
        super().__init__(mod)
        self._mod, self._machine = mod, machine
        self._readers: Counter[relax.Var] = Counter()
        self.saved = 0.0

    def read(self, func: relax.Function) -> None:
        """Look at a function that is visited next."""
        self._readers = count_readers(func)

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if not _mixes_pixels_alone(call):
            return None
        parts = [self._part(value) for value in self._joined(call.args[0])]
        if not self._pays(call, parts):
            return None
        weight, first = array_of(call.args[1]), 0
        kept: list[tuple[relax.Expr, np.ndarray]] = []
        terms: list[relax.Expr] = []
        for part in parts:
            channels = int(dims_of(part.value)[1])
            kernel = weight[:, first : first + channels]
            first += channels
            if not part.maps:
                kept.append((part.value, kernel))
                continue
            mixed = self._convolve(part.source, kernel)
            for one in reversed(part.maps):
                mixed = self.builder_.emit(one.of(self.builder_, mixed))
            terms.append(mixed)
        if kept:
            values = [value for value, _ in kept]
            data = values[0] if len(kept) == 1 else self.builder_.emit(relax.op.concat(values, 1))
            terms.insert(0, self._convolve(data, np.concatenate([k for _, k in kept], axis=1)))
        total = terms[0]
        for term in terms[1:]:
            total = self.builder_.emit(relax.op.add(total, term))
        return total

    def _joined(self, value: relax.Expr) -> list[relax.Expr]:
        """Return the tensors whose channels `value` holds one after the other."""
        made = self.look_up(value)
        if operator_name(made) != "concat" or self._readers[value] != 1:
            return [value]
        axis, parts = made.attrs.axis, made.args[0]
        if not isinstance(parts, relax.Tuple) or axis is None or int(axis) % 4 != 1:
            return [value]
        return list(parts.fields) if all(map(has_channels, parts.fields)) else [value]

    def _part(self, value: relax.Expr) -> _Part:
        maps, source = [], value
        while self._readers[source] == 1:
            found = channelwise_map(self.look_up(source), self.builder_.get())
            if found is None or not found.is_linear:
                break
            maps.append(found)
            source = found.data
        return _Part(value, source, tuple(maps))

    def _convolve(self, data: relax.Expr, kernel: np.ndarray) -> relax.Expr:
        constant = constant_from(np.ascontiguousarray(kernel))
        return self.builder_.emit(relax.op.nn.conv2d(data, constant))

    def _pays(self, call: tvm.ir.Call, parts: Sequence[_Part]) -> bool:
        """Compare the multiplications saved with the bytes that more channels are moved."""
        if not any(part.maps for part in parts):
            return False
        lanes = self._machine.lanes("float32") * self._machine.fma_units
        out, large = int(dims_of(call)[1]), _pixels(call)
        fewer = moved = 0.0
        for part in parts:
            if part.maps:
                channels = int(dims_of(part.value)[1])
                fewer += (large - _pixels(part.source)) * channels * out
                moved += large * (out - channels)  # written, and read once more for the sum
        self.saved += (worth := fewer / lanes > max(moved, 0) * CYCLES_PER_ELEMENT) * fewer
        return bool(worth)


def _mixes_pixels_alone(call: tvm.ir.Call) -> bool:
    """Tell whether `call` computes each pixel from the same pixel of its input."""
    if operator_name(call) != "nn.conv2d" or not is_float32(call) or not has_usual_layout(call):
        return False
    if not isinstance(call.args[1], tvm.ir.GenericConst) or not has_channels(call.args[0]):
        return False
    attrs = call.attrs
    window = [int(d) for d in dims_of(call.args[1])[2:]]
    return (
        window == [1, 1]
        and int(attrs.groups) == 1
        and not any(int(p) for p in attrs.padding)
        and all(int(s) == 1 for s in attrs.strides)
    )


def _pixels(value: relax.Expr) -> int:
    """Return the pixels of an image, its symbolic sizes at a nominal one.

    A size that is computed in floats, as floor(1.2 * h), counts as one symbol.
    """

    def number(size: Any) -> int:
        plain = tvm_ffi.structural_map(
            size, (tirx.Var, lambda var: tirx.IntImm(str(var.ty.dtype), _NOMINAL_SIZE))
        )
        known = tvm.sym.Analyzer().simplify(plain)
        return int(known) if isinstance(known, tirx.IntImm) else _NOMINAL_SIZE

    batch, _, height, width = dims_of(value)
    return prod(number(size) for size in (batch, height, width))
