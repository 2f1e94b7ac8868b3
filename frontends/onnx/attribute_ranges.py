"""Bounds of attributes that count axes or outputs, checked before anything else reads them.

onnx's own shape inference cuts them to 32 bits, and then writes before the first dimension of a
shape, or allocates so many outputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from frontends.errors import InvalidModel
from frontends.onnx.subgraphs import node_title

# No tensor has so many axes, and no node so many outputs.
_MOST = 1 << 15
_RANGES = {
    "axis": (-_MOST, _MOST),
    "batch_dims": (0, _MOST),
    "num_outputs": (0, _MOST),
}


def check_ranges(nodes: Iterable[onnx.NodeProto], file: str) -> None:
    """Check the attributes of nodes.

    Raises:
        InvalidModel: An attribute is an axis of no tensor, or a number that no node has.
    """
    for node in nodes:
        for attribute in node.attribute:
            least, most = _RANGES.get(attribute.name, (attribute.i, attribute.i))
            if not least <= attribute.i <= most:
                raise InvalidModel(
                    f"attribute {attribute.name} is {attribute.i}, which is out of range",
                    node=node_title(node),
                    file=file,
                )
