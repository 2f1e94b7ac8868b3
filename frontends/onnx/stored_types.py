"""Keep an operator from computing on the container of a type that TVM does not compute in.

A value of such a type (float8, int4, ...; see `frontends.storage_types`) keeps its ONNX type while
its expression is a container of bytes. Operators that move elements need not know. A few convert:
their converters read the type. Every other operator would compute on bit patterns: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from frontends.errors import UnsupportedOperator
from frontends.onnx.registry import normalize_domain
from frontends.onnx.value import Value
from frontends.storage_types import container, is_stored

_MOVING = frozenset(
    {
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "Pad", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze",
        "Where",
    }
)  # fmt: skip
_READING = frozenset({"Shape", "Size"})
_CONVERTING = frozenset(
    {
        "Cast", "CastLike", "BitCast", "DequantizeLinear", "QuantizeLinear", "MatMulNBits",
        "GatherBlockQuantized",
    }
)  # fmt: skip
# Their subgraphs are checked node by node.
_CONTROL = frozenset({"If", "Loop", "Scan"})


def check_stored_inputs(node: onnx.NodeProto, inputs: Sequence[Value | None]) -> None:
    """Refuse an operator that would compute on a container.

    Raises:
        UnsupportedOperator: If an input has a type that is only stored and `node` computes.
    """
    kinds = sorted({value.dtype for value in inputs if value is not None and value.is_stored})
    known = node.op_type in _MOVING | _READING | _CONVERTING | _CONTROL
    if kinds and not known:
        raise UnsupportedOperator(
            f"operator {node.op_type} is not supported on {', '.join(kinds)}, which is stored only"
        )
    if kinds and node.op_type in _MOVING and _reduces(node):
        raise UnsupportedOperator(f"{node.op_type} computes on {', '.join(kinds)}")


def name_stored_results(
    node: onnx.NodeProto, inputs: Sequence[Value | None], results: Sequence[Value]
) -> None:
    """Give the results of an operator that moves stored elements the type of those elements."""
    if normalize_domain(node.domain) or node.op_type not in _MOVING:
        return
    kind = next((v.dtype for v in inputs if v is not None and is_stored(v.dtype)), None)
    if kind is not None:
        for result in results:
            if result.dtype == container(kind):
                result.dtype = kind


def _reduces(node: onnx.NodeProto) -> bool:
    """Tell whether a scatter combines elements instead of replacing them."""
    modes = (a.s.decode() for a in node.attribute if a.name == "reduction")
    return any(mode != "none" for mode in modes)
