"""T1-T9: inputs that fail elsewhere. Each is compared with eager through `relaxc.compile`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda, assert_same  # noqa: E402

NAN = float("nan")


def check(function, *inputs, dynamic_shapes=None, more=(), tolerance=1e-5):
    """Compile `function` once, and compare every set of inputs with eager."""
    module = function if isinstance(function, torch.nn.Module) else Lambda(function)
    model = relaxc.compile(module, inputs, dynamic_shapes=dynamic_shapes, threads=1)
    for given in (inputs, *more):
        result = model(*given)
        results = list(result) if isinstance(result, tuple) else [result]
        with torch.no_grad():
            expected = module(*given)
        assert_same([torch.as_tensor(r).numpy() for r in results], expected, tolerance)
    return model


def test_t1_negative_and_boolean_indices():
    mask = torch.tensor([True, False, True, False])

    def function(t, index, holds):
        return [
            t[:, [-1, 0]],
            t[index],
            t[mask],
            t[..., -2],
            t[index, -1],
            t[holds],
            torch.gather(t, 1, index[:, None].expand(-1, 2) % 2),
        ]

    t = torch.randn(4, 3)
    check(function, t, torch.tensor([-1, 2, -4, 0]), torch.tensor([True, False, True, True]),
          more=[(t, torch.tensor([0, 1, 2, 3]), torch.tensor([False] * 4))])  # fmt: skip


def test_t1_an_index_out_of_range_is_an_error():
    model = relaxc.compile(
        Lambda(lambda t, i: t[i]), (torch.randn(4, 3), torch.tensor([0])), threads=1
    )
    with pytest.raises(relaxc.RunError, match="out of range"):
        model(torch.randn(4, 3), torch.tensor([4]))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_t2_interpolate(mode):
    def function(x):
        resize = torch.nn.functional.interpolate
        results = [
            resize(x, size=(7, 5), mode=mode),
            resize(x, scale_factor=1.7, mode=mode),
            resize(x, scale_factor=(0.6, 2.0), mode=mode, recompute_scale_factor=False),
        ]
        if mode in ("bilinear", "bicubic"):
            results += [
                resize(x, size=(9, 3), mode=mode, align_corners=True),
                resize(x, size=(3, 2), mode=mode, antialias=True),
                resize(x, size=(1, 1), mode=mode, antialias=True, align_corners=True),
            ]
        return results

    check(function, torch.randn(1, 2, 5, 6))


def test_t2_interpolate_of_symbolic_sizes():
    def function(x):
        resize = torch.nn.functional.interpolate
        return [resize(x, scale_factor=2.0, mode=m) for m in ("nearest", "bilinear", "bicubic")]

    check(function, torch.randn(1, 2, 5, 6), dynamic_shapes={"tensors": ({2: "h", 3: "w"},)},
          more=[(torch.randn(1, 2, 3, 9),)])  # fmt: skip


@pytest.mark.parametrize("include", [True, False])
def test_t3_average_pooling(include):
    def function(x, volume):
        pool = torch.nn.functional.avg_pool2d
        return [
            pool(x, 3, 2, 1, ceil_mode=True, count_include_pad=include),
            pool(x, (2, 3), ceil_mode=True, divisor_override=3),
            pool(x, 2, divisor_override=7),
            torch.nn.functional.avg_pool3d(volume, 2, 2, 1, True, include, 5),
        ]

    check(function, torch.randn(2, 3, 8, 6), torch.randn(1, 2, 5, 4, 3))


def test_t4_type_promotion():
    def function(i, f, t):
        return [
            i / 2,
            torch.div(i, 3, rounding_mode="floor"),
            torch.div(i, -3, rounding_mode="trunc"),
            i**3,
            i % 3,
            torch.remainder(f, -1.5),
            t.sum(),
            t + t,
            t.float() * i,
            i + 1.5,
            i * True,
            f > i,
            torch.where(t, i, f),
            torch.maximum(i, torch.tensor(2, dtype=torch.int32)),
            i.to(torch.int8) + f.half(),
        ]

    i = torch.tensor([-7, -1, 0, 5])
    check(function, i, torch.tensor([0.5, -2.0, 3.25, 1.0]), i > 0)


def test_t5_nan_propagates():
    def function(x):
        return [
            x.relu(),
            x.clamp(-1, 1),
            x.amax(1),
            x.max(1).values,
            x.max(1).indices,
            x.argmin(),
            torch.maximum(x, torch.zeros(())),
            torch.nn.functional.max_pool2d(x[None, None], 2),
            x.sort(1).values,
            torch.nn.functional.hardtanh(x),
        ]

    check(function, torch.tensor([[1.0, NAN, -2.0, 0.5], [3.0, -1.0, 2.0, NAN]]))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_t6_recurrent_layers(kind, batch_first, bidirectional):
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = kind(3, 5, 2, batch_first=batch_first, bidirectional=bidirectional)

        def forward(self, x):
            y, state = self.layer(x)
            return [y, *(state if isinstance(state, tuple) else (state,))]

    torch.manual_seed(0)
    check(Recurrent().eval(), torch.randn(4, 2, 3))


def test_t6_operators_refused_elsewhere():
    transposed = torch.nn.ConvTranspose3d(2, 3, 2, stride=2, padding=1, output_padding=1).eval()

    def function(volume, x, index):
        return [
            transposed(volume).detach(),
            torch.nn.functional.adaptive_max_pool2d(x, (3, 2)),
            *torch.nn.functional.adaptive_max_pool2d(x, (3, 2), return_indices=True),
            torch.zeros(4, 6).scatter_add(1, index, x[0, 0, :4]),
            torch.logcumsumexp(x, 2),
            *torch.cummax(x, 3),
            torch.amax(x, (0, 2)),
            x.msort(),
            *x.topk(2, 1),
        ]

    check(function, torch.randn(1, 2, 3, 4, 2), torch.randn(1, 2, 7, 6),
          torch.randint(0, 6, (4, 6)))  # fmt: skip


def test_t7_derived_sizes_and_views_of_views():
    half = torch.export.Dim("half", min=2, max=64)
    batch = torch.export.Dim("batch", min=1, max=64)

    class Derived(torch.nn.Module):
        def forward(self, x, y):
            identity = x[:, : x.shape[1]]
            wide = identity.unsqueeze(1).expand(-1, 3, -1)
            viewed = x.view(x.shape[0], -1, 2).transpose(1, 2).flatten(1)
            return [wide * 2, viewed + 1, x[:, ::2] + y, torch.cat([x, y, y], 1)]

    shapes = {"x": {0: batch, 1: 2 * half}, "y": {0: batch, 1: half}}
    check(Derived().eval(), torch.randn(3, 8), torch.randn(3, 4), dynamic_shapes=shapes,
          more=[(torch.randn(1, 6), torch.randn(1, 3))])  # fmt: skip


def test_t8_in_place_operators_and_views_written_through():
    def function(x):
        y = x.clone()
        y[:, 1] = 5
        y[0].mul_(2)
        row = y.view(-1)[2:6]
        row += 1
        y[:, ::2].zero_()
        y.t()[1].add_(x.sum())
        return [y, row, y.diagonal()]

    check(function, torch.randn(3, 4))


def test_t8_outputs_that_alias():
    def function(x):
        y = x + 1
        return [x, y, y, y.view(-1), x.view(-1)]

    x = torch.randn(2, 3)
    before = x.clone()
    results = check(function, x)(x)
    results[1].zero_()
    assert torch.equal(x, before)


def test_t9_reductions():
    def function(x):
        return [
            x.var(correction=0),
            x.var(1, correction=2),
            x.flip(0, 2),
            x.sum(),
            x.std(1, keepdim=True),
            x.std((0, 2), correction=0),
            x.mean((-1, 0)),
            torch.var_mean(x, 1)[1],
        ]

    check(function, torch.randn(3, 4, 5))
