"""Views, slices, concatenation and padding against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import (  # noqa: E402
    assert_matches_eager,
    assert_same,
    operators,
    run,
)

X = torch.arange(60.0).reshape(3, 4, 5)


def test_views():
    model = assert_matches_eager(
        lambda x: [x.view(-1, 10), x.flatten(1), x.unsqueeze(1).squeeze(1), x[None], x.reshape(60)],
        X,
    )
    assert set(operators(model)) == {"reshape"}


def test_a_view_of_the_same_shape_emits_nothing():
    assert not operators(assert_matches_eager(lambda x: x.view(3, 4, 5).expand(-1, 4, -1), X))


def test_transpositions():
    assert_matches_eager(
        lambda x: [x.permute(2, 0, 1), x.transpose(-1, 0), x.mT, x.permute(0, 1, 2), x[0].t()], X
    )


def test_expand():
    assert_matches_eager(lambda x: x[:, :1].expand(-1, 7, 5), X)
    assert_matches_eager(lambda x: x.expand(2, 3, -1, 5), X)


@pytest.mark.parametrize(
    "cut",
    [
        slice(1, 3), slice(-2, None), slice(None, -1), slice(0, 100), slice(None, None, 2),
        slice(1, None, 3), slice(-100, 2), slice(3, 1),
    ],
)  # fmt: skip
def test_slices(cut):
    assert_matches_eager(lambda x: x[:, cut], X)


def test_selection():
    assert_matches_eager(lambda x: [x[1], x[:, -1], x[..., 2], x.select(1, -2)], X)


def test_joining_promotes_and_skips_empty_operands():
    assert_matches_eager(lambda x: [torch.cat([x, x[:1]]), torch.stack([x, x], -1)], X)
    assert_matches_eager(lambda x, y: torch.cat([x, y], 1), X, X.int())
    assert_matches_eager(lambda x, e: torch.cat([e, x], 1), X, torch.empty(0))


def test_splitting():
    assert_matches_eager(
        lambda x: [*x.split(2, 1), *x.split([1, 4], -1), *x.chunk(3), *x.unbind(1)], X
    )


@pytest.mark.parametrize("pad", [(1, 2), (0, 1, 2, 0), (-1, 2), (0, 0, -1, -1), (0, 0)])
def test_constant_padding(pad):
    assert_matches_eager(lambda x: torch.nn.functional.pad(x, pad, value=-1.5), X)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_other_padding(mode):
    assert_matches_eager(lambda x: torch.nn.functional.pad(x, (2, 1), mode=mode), X)


def test_flip_of_several_dims():
    """T9: flip of several dims."""
    assert_matches_eager(lambda x: [x.flip(0), x.flip(0, 2), x.flip(-1, -2)], X)


def test_roll_and_repeat():
    assert_matches_eager(
        lambda x: [x.roll(2, 1), x.roll((-1, 7), (0, 2)), x.roll(3), x.repeat(2, 1, 1, 2)], X
    )


def test_repeat_as_often_as_another_tensor_has_rows():
    dims = {"tensors": ({0: "n"}, None)}
    assert_matches_eager(
        lambda x, y: y.repeat(x.shape[0], 1, 2), X, X[0, 0].reshape(1, 5), dynamic_shapes=dims
    )


def test_interleaved_repeat_and_tile():
    assert_matches_eager(lambda x: [x.repeat_interleave(2, 1), torch.tile(x, (2, 1))], X)


def test_writing_through_strides_of_the_storage():
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        src = x[0, 0, :3].square()
        y = x.clone()
        y.as_strided((2, 3), (7, 2), 5).copy_(src)
        turned = x.permute(2, 0, 1)
        return [y, turned.as_strided_scatter(x[0, 0, 0], (), (), 6), turned.clone()]

    assert_matches_eager(function, X)


def test_padding_by_widths_that_sizes_decide():
    def function(x):
        pad, rows, width = torch.nn.functional.pad, *x.shape
        whole = pad(x, (0, -width % 4))
        return [
            whole,
            pad(x, (1, -width % 4, rows - 1, -1), value=7.0),
            pad(x, (0, -width % 4), "reflect"),
        ]

    auto = torch.export.Dim.DYNAMIC
    dims = {"tensors": ({0: auto, 1: auto},)}
    model = assert_matches_eager(function, torch.randn(3, 6), dynamic_shapes=dims)
    for shape in [(2, 8), (5, 9)]:
        x = torch.randn(shape)
        assert_same(run(model, x), function(x))
