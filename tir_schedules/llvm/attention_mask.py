"""What the mask of an attention says about a block of keys, before any score is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import Expr

from tir_schedules.attention_nest import AttentionNest
from tir_schedules.loop_statements import i64
from tir_schedules.mask_bounds import Range, shown_everywhere, shown_somewhere


@dataclass(frozen=True)
class BlockMask:
    """The mask over `count` keys from `start` on, of one head of one sample."""

    nest: AttentionNest
    b: Any
    h: Any
    start: Any
    count: Any

    def somewhere(self, low: Any, high: Any) -> Expr | None:
        """Return whether some query of a range sees some key of the block; None for yes."""
        return None if self.nest.visible is None else shown_somewhere(*self._ranges(low, high))

    def everywhere(self, low: Any, high: Any) -> Expr | None:
        """Return whether all queries of a range see all keys of the block; None for yes."""
        return None if self.nest.visible is None else shown_everywhere(*self._ranges(low, high))

    def _ranges(self, low: Any, high: Any) -> tuple[Any, dict[Any, Range]]:
        query, key = tirx.Var("query", "int64"), tirx.Var("key", "int64")
        assert self.nest.visible is not None
        mask = self.nest.visible.at(self.b, self.h, query, key)
        keys = Range(self.start, self.start + self.count - i64(1))
        return mask, {query: Range(low, high), key: keys}
