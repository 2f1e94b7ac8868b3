"""What statements and expressions read."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer


def loads_in(node: object, source: Buffer | None = None) -> list[TensorLoad]:
    """Return the loads within a statement or an expression in order, all or those of `source`."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(node, (TensorLoad, found.append), order="pre")
    return [load for load in found if source is None or load.source.same_as(source)]
