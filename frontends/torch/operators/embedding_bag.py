"""Sums, means and maxima of bags of embedding rows."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from frontends.computations.embedding_bag import checked_offsets, embedding_bag
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.source_line import source_line

_MODES = ("sum", "mean", "max")  # torch numbers them in this order


@converter("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag_(
    b: GraphBuilder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[relax.Expr, None, None, None]:
    """Bags of rows of `weight` [V, E] combined: [bags, E]; what only training reads is left out."""
    if any(b.is_read(place) for place in (1, 2, 3)):
        raise b.unsupported("a result that only its gradient needs")
    table = b.tensor(weight)
    rows = b.static(b.shape(table)[0])
    places = b.checked(indices, rows)
    scales = [] if per_sample_weights is None else [b.tensor(per_sample_weights, b.dtype)]
    skipped = padding_idx if padding_idx >= 0 else padding_idx + rows
    ignored = skipped if padding_idx != -1 else None
    bags = b.result_shape[0]

    def compute(w: te.Tensor, i: te.Tensor, o: te.Tensor, *s: Any) -> te.Tensor:
        *factors, dims = s
        factor = factors[0] if factors else None
        return embedding_bag(w, i, o, factor, dims[0], _MODES[mode], ignored)

    message = "offsets have to begin with 0, must not fall, and end within the input"
    message += source_line(b.node)
    starts = b.te(
        lambda o, i: checked_offsets(o, i, message),
        b.tensor(offsets),
        places,
        name="checked_offsets",
    )
    bag = b.te(compute, table, places, starts, *scales, name="embedding_bag", dims=[bags])
    return bag, None, None, None
