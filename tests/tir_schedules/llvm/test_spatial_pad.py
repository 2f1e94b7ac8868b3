"""Symbolic extents stay as simple as they are, layer after layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from tir_schedules.llvm.pool import pool_extent
from tir_schedules.llvm.spatial_pad import out_extent


@pytest.mark.parametrize(
    "extent",
    [
        lambda size, stride: out_extent(size, 1, 1, 3, stride, 1),
        lambda size, stride: pool_extent(size, 1, 1, 3, stride, 1, False),
        lambda size, stride: pool_extent(size, 1, 1, 3, stride, 1, True),
    ],
)
def test_extents_do_not_grow_with_depth(extent: Callable[[Any, int], Any]) -> None:
    size = tirx.Var("h", "int64")
    assert extent(size, 1).same_as(size)
    halved = [extent(size, 2)]
    for _ in range(8):
        halved.append(extent(extent(halved[-1], 1), 2))
    # Only the numbers get longer: h // 4 becomes h // 512.
    assert len(str(halved[-1])) <= len(str(halved[1])) + 2 * len("00")
