"""The versions of a value: in NCHW, and in blocks where an operator asked for them.

A version is made when it is first asked for and then kept, so that each value is transformed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tvm
from tvm import relax

from relax_passes.constant_values import array_of, constant_from
from relax_passes.layout.blocked import Blocked, dims_of, has_channels, is_one, pack_constant
from relax_passes.layout.transforms import LayoutTransforms


class Versions:
    """The values in scope that are in blocks, by the variables of the old graph.

    Attributes:
        blocked: The version that a value is computed in, or was transformed to first.
        plain: Returns the version in NCHW.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        transforms: LayoutTransforms,
        plain: Callable[[relax.Expr], relax.Expr],
    ) -> None:
        self._builder = builder
        self._transforms = transforms
        self.plain = plain
        self.blocked: dict[relax.Var, Blocked] = {}
        self._others: dict[tuple[relax.Var, int], Blocked] = {}
        # Constants that are not kernels, by block, channels and what fills up the last block.
        self._constants: dict[tuple[tvm.ir.GenericConst, int, int, float], relax.Expr] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget in the end what was made meanwhile: it is out of scope behind its block."""
        before = dict(self.blocked), dict(self._others)
        yield
        self.blocked, self._others = before

    def of(self, value: relax.Expr, block: int) -> Blocked:
        """Return `value` in blocks of the given size, kept for the next reader."""
        if not isinstance(value, relax.Var):
            return self._transforms.block(self.plain(value), block)
        if value not in self.blocked:
            self.blocked[value] = self._transforms.block(self.plain(value), block)
        held = self.blocked[value]
        if held.block == block:
            return held
        if (value, block) not in self._others:
            self._others[value, block] = self._transforms.reblock(held, block)
        return self._others[value, block]

    def operand(self, value: relax.Expr, block: int, channels: int, fill: float) -> relax.Expr:
        """Return an operand that broadcasts against (N, C, H, W) as one for blocks.

        A constant's lanes past the last channel hold `fill`.
        """
        if isinstance(value, tvm.ir.GenericConst):
            key = (value, block, channels, fill)
            if key not in self._constants:
                array = array_of(value)
                packed = array.reshape(()) if array.size == 1 else pack_constant(array, block, fill)
                self._constants[key] = constant_from(packed)
            return self._constants[key]
        dims = dims_of(value)
        if has_channels(value) and int(dims[1]) == channels:
            return self.of(value, block).value
        plain = self.plain(value)
        if not dims:
            return plain
        # No channel axis, or one of extent 1: the block axis broadcasts.
        assert len(dims) < 3 or is_one(dims[-3]), "the plan leaves such an operand in NCHW"
        return self._builder.emit(relax.op.reshape(plain, [*dims, 1]))
