"""Why two groups of sibling kernels stay apart, although they share bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import tvm_ffi

from relax_passes.analysis.tensor_bytes import bytes_of, points_of, static_shape
from relax_passes.sibling_kernels import SiblingKernels
from tir_schedules.machine import Machine


@dataclass
class SiblingGroup:
    """Nodes that become one kernel, the leading axes they share, and where it runs."""

    nodes: list[int]
    place: float
    rows: int
    blocks: int
    saved: int = 0


@dataclass(frozen=True)
class Limits:
    """How far groups grow; what saves less than `least_bytes`, at least 1, stays apart."""

    max_blocks: int
    max_results: int
    least_bytes: int


class SiblingObstacles:
    """Finds what is against one kernel for two groups of a block."""

    def __init__(self, kernels: SiblingKernels, machine: Machine, limits: Limits) -> None:
        self._kernels, self._machine, self._limits = kernels, machine, limits

    def against(self, a: SiblingGroup, b: SiblingGroup, rows: int) -> str:
        """Return why two groups that share bytes stay apart, "" if they need not."""
        nodes = {*a.nodes, *b.nodes}
        if a.blocks + b.blocks > self._limits.max_blocks:
            return f"one kernel would have more than {self._limits.max_blocks} compute blocks"
        if len(self._kernels.results(nodes)) > self._limits.max_results:
            return f"one kernel would have more than {self._limits.max_results} results"
        tensors = {var for node in nodes for var in self._kernels.arguments(node)}
        tensors |= {self._kernels.bindings[node].var for node in nodes}
        most = self._machine.most_tensors
        if most is not None and len(tensors) > most:
            return f"one kernel would be given more than {most} tensors"
        shapes = {node: list(self._kernels.bindings[node].var.ty.shape) for node in nodes}
        first = shapes[a.nodes[0]][:rows]
        if any(not equal_sizes(shape[:rows], first) for shape in shapes.values()):
            return "they run over rows of other sizes"
        for node in nodes:
            for var, how in self._kernels.operands(node).items():
                if self._kernels.index.get(var) in nodes and how.places[:rows] != tuple(
                    range(rows)
                ):
                    return "one reads other rows of what the other makes"
            arguments = self._kernels.arguments(node)
            if any(
                self._kernels.index.get(v) in nodes and arguments.count(v) > 1 for v in arguments
            ):
                return "one reads other rows of what the other makes"
        return self._of_rows(nodes, rows)

    def _of_rows(self, nodes: Collection[int], rows: int) -> str:
        """Return why a schedule over the shared rows would be slower, "" if it would not."""
        spaces = [self._kernels.space(node) for node in nodes]
        results = [self._kernels.bindings[node].var for node in nodes]
        if not any(space.reductions for space in spaces):
            if any(space.strided for space in spaces):
                return "one reads across its rows, as a transpose does"
            same = all(equal_sizes(list(v.ty.shape), list(results[0].ty.shape)) for v in results)
            return (
                "" if same and rows == len(results[0].ty.shape) else "their results differ in shape"
            )
        if self._machine.is_gpu:
            return "no rule of this target reduces rows to several results"
        if any(space.strided for space in spaces):
            return self._of_columns(nodes, rows)
        count = math.prod(static_shape(results[0])[:rows])
        if rows == 0 and any(points_of(var) > 1 for var in results):
            return "their results have no leading axis in common"
        for var, space in zip(results, spaces, strict=True):
            if space.rows > rows and points_of(var) > count and count < 4 * self._machine.cores:
                return "so few rows would not keep the cores busy"
        widest = max(bytes_of(var) for node in nodes for var in self._kernels.touched(node))
        once = all(space.reductions == 1 and len(space.operands) == 1 for space in spaces)
        if widest // max(count, 1) > self._machine.l2_bytes // 2 and not once:
            return "a row would leave the cache before it is read again"
        return ""

    def _of_columns(self, nodes: Collection[int], rows: int) -> str:
        """Return why reductions along another axis than the last cannot share their loops."""
        shape = list(self._kernels.bindings[min(nodes)].var.ty.shape)
        for node in nodes:
            var, space = self._kernels.bindings[node].var, self._kernels.space(node)
            inner = any(
                self._kernels.index.get(arg) in nodes for arg in self._kernels.arguments(node)
            )
            if not space.strided or space.reductions != 1 or inner:
                return "one reduces rows, the other columns"
            if not equal_sizes(list(var.ty.shape), shape) or rows != len(shape):
                return "their results differ in shape"
        return ""


def equal_sizes(a: Sequence[object], b: Sequence[object]) -> bool:
    """Return whether two lists of sizes are the same, symbols included."""
    return len(a) == len(b) and all(map(tvm_ffi.structural_equal, a, b))
