"""Complex numbers and Fourier transforms against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda, assert_matches_eager  # noqa: E402


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def real(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z.resolve_conj())


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_along_several_axes(norm):
    def transforms(x):
        return [
            real(torch.fft.rfft2(x, norm=norm)),
            real(torch.fft.fftn(x, norm=norm)),
            real(torch.fft.ifft(x, n=11, dim=1, norm=norm)),
            real(torch.fft.ihfft(x, norm=norm)),
            torch.fft.irfftn(x, s=(6, 7), norm=norm),
            torch.fft.hfft(x, norm=norm),
        ]

    assert_matches_eager(transforms, numbers(3, 6, 8))


def test_a_long_transform_is_fast_and_comes_back():
    assert_matches_eager(lambda x: real(torch.fft.rfft(x)), numbers(2, 600))
    assert_matches_eager(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5), numbers(2, 600))


def test_the_length_may_be_symbolic():
    model = relaxc.compile(
        Lambda(lambda x: torch.fft.fft(x, dim=0, norm="ortho").abs()),
        (numbers(8, 3),),
        dynamic_shapes=(({0: "length"},),),
    )
    x = numbers(21, 3)
    want = torch.fft.fft(x, dim=0, norm="ortho").abs()
    torch.testing.assert_close(torch.as_tensor(model(x)), want, rtol=1e-4, atol=1e-5)


def test_arithmetic():
    def arithmetic(x, y):
        z, w = torch.complex(x, y), torch.complex(y, x + 3)
        results = [z + w, 2 * z - w, z * w, z / w, x / w, 1 / w, z * x + 1j, z**3, z.conj() * w]
        return [real(result) for result in results] + [z.abs(), z.angle(), z == w, z != w]

    assert_matches_eager(arithmetic, numbers(4, 5), numbers(4, 5).flip(0))


def test_functions():
    def functions(x, y):
        z = torch.complex(x, y)
        return [real(f(z)) for f in (torch.exp, torch.log, torch.sgn, torch.reciprocal)]

    assert_matches_eager(functions, numbers(4, 5), numbers(4, 5).flip(0))


def test_modulus_neither_overflows_nor_vanishes():
    x = torch.tensor([0.0, 3e30, 3e-30, float("inf"), 3.0])
    y = torch.tensor([0.0, 4e30, 4e-30, 1.0, 0.0])
    assert_matches_eager(
        lambda x, y: torch.complex(x, y).abs() / (1 + x), x[[0, 1, 4]], y[[0, 1, 4]]
    )
    assert_matches_eager(lambda x, y: torch.complex(x, y).abs() * 1e30, x[2:3], y[2:3])
    assert_matches_eager(lambda x, y: torch.complex(x, y).abs(), x, y)


def test_shapes_and_sums():
    def moves(x):
        z = torch.fft.fft(x)
        results = [
            z.reshape(-1)[::2].flip(0),
            z.T,
            torch.cat([z, x]),
            z.sum(0),
            z.mean(),
            z[:, [0, -1]],
            torch.where(x > 0, z, 1j),
            torch.nn.functional.pad(z, (1, 2), value=2),
            torch.fft.fftshift(z),
            z @ z.T,
        ]
        return [real(result) for result in results]

    assert_matches_eager(moves, numbers(4, 6))


def test_rotary_embedding_by_complex_products():
    turns = torch.polar(torch.ones(4), torch.arange(4.0))

    def rotate(x):
        z = torch.view_as_complex(x.reshape(2, 4, 2)) * turns
        return torch.view_as_real(z).flatten(1)

    assert_matches_eager(rotate, numbers(2, 8))


def test_a_spectrogram_and_its_inverse():
    window = torch.hann_window(16)

    def spectrogram(x):
        return torch.stft(x, 16, window=window, return_complex=True).abs() ** 2

    def round_trip(x):
        z = torch.stft(x, 16, window=window, return_complex=True)
        return torch.istft(z, 16, window=window)

    assert_matches_eager(spectrogram, numbers(2, 64))
    assert_matches_eager(round_trip, numbers(2, 64))


def test_complex_inputs_and_outputs_are_pairs():
    z = torch.complex(numbers(3, 4), numbers(3, 4).flip(0))
    model = relaxc.compile(Lambda(lambda z: z * z.conj() + 1), (z,))
    assert [(i.shape, i.dtype) for i in model.inputs] == [((3, 4, 2), "float32")]
    assert [(o.shape, o.dtype) for o in model.outputs] == [((3, 4, 2), "float32")]
    have = torch.as_tensor(model(torch.view_as_real(z)))
    torch.testing.assert_close(have, real(z * z.conj() + 1))


def test_an_operator_without_a_complex_form_is_named():
    z = torch.complex(numbers(3), numbers(3))
    with pytest.raises(relaxc.UnsupportedOperator, match="aten.tanh.default"):
        relaxc.compile(Lambda(torch.tanh), (z,))
