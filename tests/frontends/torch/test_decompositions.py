"""Our own decompositions, and operators whose result's length the data decides, against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from relaxc.errors import RunError  # noqa: E402
from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402


def test_slices_and_places_that_are_reduced_into():
    def function(x, source, places):
        reduced = [
            x.index_reduce(0, places, source, how, include_self=itself)
            for how in ("prod", "mean", "amax", "amin")
            for itself in (True, False)
        ]
        values = source[0, :3]
        return [*reduced, x.put(places, values), x.put(-1 - places, values, accumulate=True)]

    places = torch.tensor([0, 2, 0])
    assert_matches_eager(function, torch.randn(4, 5), torch.randn(3, 5), places)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_medians(dtype):
    def function(x):
        whole = [x.median(), x.nanmedian(), x[0].median(), x[:1, :2].nanmedian()]
        pairs = [x.median(0), x.median(-1, keepdim=True), x.nanmedian(0)]
        # Which NaN of a row of them torch names is left open.
        return [*whole, x.nanmedian(1)[0], *(part for pair in pairs for part in pair)]

    nan = float("nan")
    x = torch.tensor([[3.0, 1.0, 2.0, 9.0], [4.0, nan, 7.0, 0.0], [nan, nan, nan, nan]])
    x = x if dtype is torch.float32 else torch.tensor([[3, 1, 2, 9], [4, 6, 7, 0]])
    assert_matches_eager(function, x)


def test_the_median_of_nothing_is_not_a_number():
    assert_matches_eager(lambda x: [x[:0].median(), x[:0].nanmedian()], torch.ones(3))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_norms_of_half_precision_with_wider_parameters(half):
    """As `torch.autocast` calls them: the parameters of a norm stay float32."""
    torch.manual_seed(0)
    layers = nn.ModuleList(
        [nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True)]
    ).eval()

    def function(x):
        return [layer(x.to(half)).float() for layer in layers]

    assert_matches_eager(function, torch.randn(2, 4, 6), tolerance=2e-2)


def test_lengths_that_the_data_decides():
    class Module(nn.Module):
        def forward(self, x, repeats):
            values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
            chosen = x.masked_select(repeats[:, None] > 1)
            return values * 2, inverse, counts, x.repeat_interleave(repeats, 0), chosen + 1

    module = Module().eval()
    x, repeats = torch.tensor([[3.0, 1.0], [1.0, -2.0], [3.0, 3.0]]), torch.tensor([2, 0, 3])
    model = relaxc.compile(module, (x, repeats))
    for given in [(x, repeats), (x * 0, repeats * 0), (x + x.sum(), repeats + 1)]:
        for have, want in zip(model(*given), module(*given), strict=True):
            assert have.dtype == want.dtype and torch.equal(have, want)
    for wrong in ([3, -1, 0], [-1, -2, 0]):
        with pytest.raises(RunError, match="repeats can not be negative"):
            model(x, torch.tensor(wrong))


def test_every_core_operator_has_a_converter_or_a_decomposition():
    """But for gradients, what writes to a given tensor, and what asks for sizes: see `is_size`."""
    from frontends.torch.export_program import decompositions
    from frontends.torch.graph_walk import COMPLEX_REGISTRY, REGISTRY
    from tests.conformance.torch_operators.core_set import core_operators

    names = [name for name in core_operators() if not name.startswith("sym_")]
    packets = [getattr(torch.ops.aten, name) for name in names]
    overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    core = [op for op in overloads if torch.Tag.core in op.tags and not op._schema.is_mutable]
    known = REGISTRY.keys() | COMPLEX_REGISTRY.keys() | set(map(str, decompositions()))
    assert len(core) > 150
    assert [str(op) for op in core if str(op) not in known] == []
