"""Attention, RotaryEmbedding and TensorScatter of ai.onnx against ONNX's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relaxc
from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import make_model, run_imported

RNG = np.random.default_rng(17)
B, H, G, Q, K, D = 2, 4, 2, 3, 5, 8


def _floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def _model(
    op: str, inputs: Sequence[Any], outputs: int = 1, opset: int = 25, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = [f"x{place}" if array is not None else "" for place, array in enumerate(inputs)]
    given = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    results = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    kinds = {name: (array.dtype, array.shape) for name, array in given.items()}
    kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    model = make_model(
        [node], kinds, results, opset=opset, output_types=dict.fromkeys(results, kind)
    )
    return model, given


def _check(
    op: str, inputs: Sequence[Any], outputs: int = 1, tolerance: float = 2e-5, **attributes: Any
) -> list[np.ndarray]:
    model, given = _model(op, inputs, outputs, **attributes)
    expected = ReferenceEvaluator(model).run(None, given)
    got = run_imported(model, given)
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
    return got


def _heads(keys: int = K, groups: int = H) -> list[np.ndarray]:
    return [_floats(B, H, Q, D), _floats(B, groups, keys, D), _floats(B, groups, keys, 6)]


def _seen(*shape: int) -> np.ndarray:
    mask = RNG.random(shape) < 0.6
    mask[..., 0] = True
    return mask


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 0.2},
    "capped": {"softcap": 1.5},
    "causal": {"is_causal": 1},
    "window": {"left_window_size": 1, "right_window_size": 1},
    "causal window": {"is_causal": 1, "left_window_size": 1},
}


@pytest.mark.parametrize(
    ("variant", "groups"), list(zip(VARIANTS, [1, G, H, G, H, 1], strict=True))
)
def test_attention(variant: str, groups: int) -> None:
    _check("Attention", _heads(groups=groups), **VARIANTS[variant])


@pytest.mark.parametrize(
    ("shape", "boolean"),
    [((K,), True), ((Q, K), False), ((H, Q, K), True), ((B, H, Q, K), False), ((B, 1, Q, K), True)],
)
def test_masks_of_every_rank(shape: tuple[int, ...], boolean: bool) -> None:
    mask = _seen(*shape) if boolean else _floats(*shape)
    _check("Attention", [*_heads(), mask], is_causal=int(len(shape) > 1))


@pytest.mark.parametrize("boolean", [False, True])
def test_a_query_that_sees_no_key_gives_zeros(boolean: bool) -> None:
    mask = np.ones((Q, K), bool)
    mask[1] = False
    if not boolean:
        mask = np.where(mask, 0, -np.inf).astype("float32")
    y, *_, scores = _check("Attention", [*_heads(), mask], 4, qk_matmul_output_mode=3)
    assert not y[:, :, 1].any() and not scores[:, :, 1].any()
    assert y[:, :, 0].all()


def test_a_mask_that_is_shorter_than_the_keys() -> None:
    lengths = np.asarray([4, 2], "int64")
    for mask in (_seen(Q, 4), _floats(Q, 4)):
        _check("Attention", [*_heads(), mask, None, None, lengths])


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_of_an_outer_cache(causal: int) -> None:
    # The second sample has fewer keys than queries: its first query sees none.
    lengths = np.asarray([5, 2], "int64")
    _check("Attention", [*_heads(), None, None, None, lengths], is_causal=causal)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_cache_and_scores_as_outputs(mode: int) -> None:
    past = [_floats(B, G, 4, D), _floats(B, G, 4, 6)]
    _check(
        "Attention", [*_heads(Q, G), _floats(Q, Q + 4), *past], 4, is_causal=1,
        softcap=2.0 if mode else 0.0, qk_matmul_output_mode=mode,
    )  # fmt: skip


def test_inputs_of_rank_3() -> None:
    inputs = [_floats(B, Q, H * D), _floats(B, K, G * D), _floats(B, K, G * 6)]
    _check("Attention", inputs, 3, q_num_heads=H, kv_num_heads=G)


def test_half_precision_is_rounded_once() -> None:
    q, k, v = (x.astype("float16") for x in _heads())
    scores = q.astype("float64") @ k.astype("float64").transpose(0, 1, 3, 2) / np.sqrt(D)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact = shares / shares.sum(-1, keepdims=True) @ v.astype("float64")
    model, given = _model("Attention", [q, k, v])
    compiled = relaxc.compile(model, threads=1, progress=False)
    result = np.asarray(compiled(**given)).astype("float64")
    np.testing.assert_allclose(result, exact, rtol=1.01 * 2**-11, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype: str) -> None:
    inputs = [x.astype(dtype) for x in _heads()]
    _check("Attention", inputs, tolerance=4e-3 if dtype == "float16" else 1e-9)


def test_groups_share_keys_without_copies() -> None:
    model, _ = _model("Attention", _heads(groups=G))
    text = import_onnx(model).module.script()
    assert "R.repeat" not in text and "R.tile" not in text and "broadcast_to" not in text


def test_lengths_known_at_run_time_through_the_whole_compiler() -> None:
    shapes = [["b", H, "q", D], ["b", G, "q", D], ["b", G, "q", 6], ["q", "t"],
              ["b", G, "p", D], ["b", G, "p", 6]]  # fmt: skip
    fixed = [*_heads(Q, G), _floats(Q, Q + 4), _floats(B, G, 4, D), _floats(B, G, 4, 6)]
    model, _ = _model("Attention", fixed, 3, is_causal=1)
    for value, shape in zip(model.graph.input, shapes, strict=True):
        for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            dim.Clear()
            if isinstance(size, str):
                dim.dim_param = size
            else:
                dim.dim_value = size
    compiled = relaxc.compile(model, threads=1, progress=False)
    for batch, queries, past in ((B, Q, 4), (1, 1, 7)):
        given = {
            "x0": _floats(batch, H, queries, D), "x1": _floats(batch, G, queries, D),
            "x2": _floats(batch, G, queries, 6), "x3": _floats(queries, queries + past),
            "x4": _floats(batch, G, past, D), "x5": _floats(batch, G, past, 6),
        }  # fmt: skip
        expected = ReferenceEvaluator(model).run(None, given)
        for mine, theirs in zip(compiled(**given), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_heads_that_do_not_divide_are_refused() -> None:
    model, _ = _model("Attention", _heads(groups=3))
    with pytest.raises(InvalidModel, match="heads"):
        import_onnx(model)


def test_rank_3_without_heads_is_refused() -> None:
    model, _ = _model("Attention", [_floats(B, Q, 8)] * 3)
    with pytest.raises(InvalidModel, match="q_num_heads"):
        import_onnx(model)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotated", [0, 4])
def test_rotary_embedding(interleaved: int, rotated: int) -> None:
    pairs = (rotated or D) // 2
    tables = [_floats(9, pairs), _floats(9, pairs)]
    places = RNG.integers(0, 9, (B, Q))
    options = {"interleaved": interleaved, "rotary_embedding_dim": rotated}
    _check("RotaryEmbedding", [_floats(B, Q, H * D), *tables, places], num_heads=H, **options)
    whole = [_floats(B, Q, pairs), _floats(B, Q, pairs)]
    _check("RotaryEmbedding", [_floats(B, H, Q, D), *whole], **options)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_tensor_scatter(mode: str, axis: int) -> None:
    update = _floats(B, 3, 3, 2) if axis == -2 else _floats(B, 2, 6, 2)
    starts = np.asarray([2, 4 if mode == "circular" and axis == -2 else 1], "int64")
    starts = np.minimum(starts, 1) if axis == 1 and mode == "linear" else starts
    _check("TensorScatter", [_floats(B, 3, 6, 2), update, starts], mode=mode, axis=axis)
