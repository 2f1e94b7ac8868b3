"""Reductions over windows whose channels lie side by side: pooling, depthwise and narrow groups.

A thread makes `VECTOR` neighbouring channels of up to four neighbouring pixels. Along the window's
axis of these pixels everything is unrolled, so that what several windows share is loaded once into
registers, as one vector where its channels are neighbours. No tile in shared memory is needed: what
a warp reads of a row are neighbours. Sums of 16-bit floats are kept in float32.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr, IterVar, PrimFunc, Var
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant, inline_spatial, new_schedule, points
from tir_schedules.cuda.product_operands import flat_position
from tir_schedules.cuda.row_plan import unravel
from tir_schedules.cuda.threads import THREADS, VECTOR
from tir_schedules.cuda.window_pattern import (
    Part,
    Window,
    read_window,
    size_of,
    take_apart,
)
from tir_schedules.cuda.written_kernel import cast, write_kernel
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule
from tir_schedules.variables import substitute, uses

_PIXELS = (4, 2, 1)
_UNROLLED = 16  # windows of more elements along the axis of the pixels are looped over
_LONGEST = 4096  # elements of a window: a thread alone takes long for more
_HALVES = ("float16", "bfloat16")


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    sch = new_schedule(func)
    inline_spatial(sch)
    window = read_window(sch)
    cores = machine.gpu.multiprocessors if machine.gpu else machine.cores
    return write_kernel(func, _WindowKernel(window, cores).emit)


class _WindowKernel:
    """Emits the kernel of a `Window`.

    Raises:
        Decline: If channels are not neighbours in what it reads, or there are too few results.
    """

    def __init__(self, window: Window, cores: int) -> None:
        self.window = window
        sizes = [axis.dom.extent for axis in window.results]
        channels = constant(sizes[-1])
        if channels is None or channels % VECTOR:
            raise Decline("its channels are no whole vectors")
        lengths = [constant(axis.dom.extent) or 1 for axis in window.window]
        if points(list(lengths)) > _LONGEST:
            raise Decline("its windows are long")
        self.units = [*sizes[:-2], sizes[-2], channels // VECTOR]
        threads = points([constant(size) for size in self.units])
        if threads * 4 < cores * THREADS and points(list(lengths)) > 64:
            raise Decline("few results of long windows")
        wide = constant(sizes[-2])
        self.pixels = next(
            (p for p in _PIXELS if (wide or 1) >= p and threads // p >= cores * THREADS), 1
        )
        self.ragged = wide is None or wide % self.pixels != 0
        self.units[-2] = tirx.ceildiv(sizes[-2], self.pixels)
        self.unrolled = self._axis_along_pixels()
        dtype = str(window.source.dtype)
        self.inner = "float32" if dtype in _HALVES else dtype
        self.value, self.parts = take_apart(window.value)
        for part in self.parts:
            part.step = self._lane_step(part)

    def _axis_along_pixels(self) -> IterVar | None:
        """Return the window's axis that moves along with the pixels: its loads are shared."""
        pixel = self.window.results[-2].var
        for axis in self.window.window:
            for load in loads_in(self.window.value):
                if any(uses(i, axis.var) and uses(i, pixel) for i in load.indices):
                    return axis if int(axis.dom.extent.value) <= _UNROLLED else None
        return None

    def _lane_step(self, part: Part) -> int:
        """Return how far apart the elements of neighbouring channels lie: 0 or 1.

        Raises:
            Decline: If they are neither one element nor an aligned vector.
        """
        channel, group = self.window.results[-1].var, Var("g", "int64")
        analyzer = tvm.sym.Analyzer()
        analyzer.bind(group, tvm.ir.Range(0, 1 << 24))
        position = flat_position(part.load)

        def at(expr: Expr, lane: int) -> Expr:
            return substitute(expr, {channel: group * VECTOR + lane})

        def moves(expr: Expr, step: int) -> bool:
            return all(
                analyzer.can_prove_equal(at(expr, lane) - at(expr, 0), step * lane)
                for lane in range(1, VECTOR)
            )

        condition = part.condition
        if condition is None or tvm_ffi.structural_equal(at(condition, 0), at(condition, 1)):
            if moves(position, 0):
                return 0
            begin = tirx.floormod(at(position, 0), VECTOR)
            if moves(position, 1) and analyzer.can_prove_equal(begin, 0):
                return 1
        raise Decline("its channels are not neighbours in what it reads")

    # The kernel -------------------------------------------------------------------------------

    def emit(self) -> None:
        total: Expr = tirx.IntImm("int64", 1)
        for size in self.units:
            total = total * tirx.Cast("int64", size)
        known = constant(tvm.sym.Analyzer().simplify(total))
        with (
            T.launch_thread("blockIdx.x", tirx.ceildiv(total, THREADS)) as block,
            T.launch_thread("threadIdx.x", THREADS) as thread,
        ):
            number = tirx.Cast("int64", block) * THREADS + tirx.Cast("int64", thread)
            self.places = unravel(number, self.units)
            if known is not None and known % THREADS == 0:
                return self._emit_unit()
            with T.If(number < total), T.Then():
                self._emit_unit()
        return None

    def _emit_unit(self) -> None:
        """Emit what a thread does: reduce the windows of its pixels, then store."""
        self.totals = T.alloc_buffer((self.pixels * VECTOR,), self.inner, scope="local")
        for pixel in range(self.pixels):
            first = substitute(self.window.first, self._at(pixel, 0))
            for lane in range(VECTOR):
                T.buffer_store(self.totals, cast(first, self.inner), [pixel * VECTOR + lane])
        looped = [axis for axis in self.window.window if axis is not self.unrolled]
        self._visit(looped, {a.var: tirx.IntImm("int64", 0) for a in self.window.window})
        for pixel in range(self.pixels):
            if self.ragged and pixel:
                with T.If(self._pixel(pixel) < self.window.results[-2].dom.extent), T.Then():
                    self._store(pixel)
            else:
                self._store(pixel)

    def _visit(self, looped: list[IterVar], values: dict[Var, Expr]) -> None:
        if looped:
            # Not unrolled: registers would fill with what later rows of the window read.
            with T.serial(0, size_of(looped[0]), unroll=False) as at:
                self._visit(looped[1:], {**values, looped[0].var: tirx.Cast("int64", at)})
            return
        steps = range(1 if self.unrolled is None else size_of(self.unrolled))
        along = [tirx.IntImm("int64", step) for step in steps]
        own = [] if self.unrolled is None else [self.unrolled.var]
        visits = [
            (pixel, values | dict.fromkeys(own, step))
            for step in along
            for pixel in range(self.pixels)
        ]
        # Of the pixels that share an element, the first is in the image if any is.
        first: dict[Any, int] = {}
        for pixel, place in visits:
            for part in self.parts:
                key = self._element(part, pixel, place)
                first[key] = min(pixel, first.get(key, pixel))
        loaded: dict[Any, Any] = {}
        for pixel, place in visits:
            for part in self.parts:
                key = self._element(part, pixel, place)
                if key not in loaded:
                    loaded[key] = self._load(part, pixel, place, first[key])
            self._take(pixel, place, loaded)

    def _element(self, part: Part, pixel: int, values: dict[Var, Expr]) -> Any:
        """Return a key that is the same for visits that read the same element."""
        whole = substitute(part.whole, values | self._at(pixel, 0))
        return tvm_ffi.StructuralKey(tvm.sym.Analyzer().simplify(whole))

    def _take(self, pixel: int, values: dict[Var, Expr], loaded: dict[Any, Any]) -> None:
        """Emit how a pixel's results take in one element of their windows."""
        held = [loaded[self._element(part, pixel, values)] for part in self.parts]
        for lane in range(VECTOR):
            registers = {
                part.name: kept[lane * part.step]
                for part, kept in zip(self.parts, held, strict=True)
            }
            mapping = {**values, **self._at(pixel, lane), **registers}
            value = cast(substitute(self.value, mapping), self.inner)
            at = pixel * VECTOR + lane
            T.buffer_store(self.totals, self.window.combine(self.totals[at], value), [at])

    def _load(self, part: Part, pixel: int, values: dict[Var, Expr], first: int) -> Any:
        """Emit the load of an element of each channel; return the registers that hold them.

        Args:
            part: What is read.
            pixel: One of the pixels that share it.
            values: Where in the window it is.
            first: The first of these pixels.
        """
        analyzer = tvm.sym.Analyzer()
        dtype = str(part.load.ty.dtype)
        kept = T.alloc_buffer((VECTOR if part.step else 1,), dtype, scope="local")

        def each(emit: Any) -> None:
            if not part.step:
                return emit(0)
            with T.vectorized(0, VECTOR) as lane:
                emit(lane)
            return None

        def fetch(lane: Any) -> None:
            load = substitute(part.load, {**values, **self._at(pixel, lane)})
            T.buffer_store(kept, load, [lane])

        place = values | self._at(pixel, 0)
        conditions = [] if part.unless is None else [substitute(part.condition, place)]
        if self.ragged and first:
            conditions.append(self._pixel(first) < self.window.results[-2].dom.extent)
        condition = analyzer.simplify(tirx.all(*conditions)) if conditions else None
        if condition is None or isinstance(condition, tirx.IntImm) and int(condition):
            each(fetch)
            return kept
        other = tirx.const(0, dtype) if part.unless is None else part.unless
        with T.If(condition):
            with T.Then():
                each(fetch)
            with T.Else():
                each(lambda lane: T.buffer_store(kept, other, [lane]))
        return kept

    def _pixel(self, at: int) -> Expr:
        return self.places[-2] * self.pixels + at

    def _at(self, pixel: int, lane: Any) -> dict[Var, Expr]:
        """Return the values of the axes of the results."""
        places = [*self.places[:-2], self._pixel(pixel), self.places[-1] * VECTOR + lane]
        return {axis.var: value for axis, value in zip(self.window.results, places, strict=True)}

    def _store(self, pixel: int) -> None:
        """Emit what the function stores of a pixel's results, as vectors."""
        window = self.window
        dtype = str(window.source.dtype)
        with T.vectorized(0, VECTOR) as lane:
            places = self._at(pixel, lane).values()
            mapping = dict(zip(window.axes, places, strict=True))
            result = cast(self.totals[pixel * VECTOR + lane], dtype)

            def read(load: TensorLoad) -> Expr:
                return result if load.source.same_as(window.source) else load

            store = window.store
            value = tvm_ffi.structural_map(store.value, (TensorLoad, read))
            if window.axes[0].same_as(window.results[0].var):  # nothing is behind the reduction
                value = result
            indices = [substitute(index, mapping) for index in store.indices]
            T.buffer_store(store.buffer, substitute(value, mapping), indices)


RULE = Rule("window", _apply)
