"""com.microsoft's attention operators and rotary embedding against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import tirx

import relaxc
from frontends.errors import UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import (
    assert_like_reference,
    make_model,
    run_imported,
    run_reference,
)

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(23)

Inputs = Sequence["np.ndarray | None"]


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _model(
    op: str,
    inputs: Inputs,
    outputs: Sequence[str] = ("y",),
    fixed: Sequence[int] = (),
    **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of one node; None leaves an input out, `fixed` ones are initializers."""
    names = [f"x{place}" if array is not None else "" for place, array in enumerate(inputs)]
    given = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    constants = {f"x{place}": given.pop(f"x{place}") for place in fixed}
    node = helper.make_node(op, names, list(outputs), domain=MICROSOFT, **attrs)
    kinds = {name: (array.dtype, array.shape) for name, array in given.items()}
    model = make_model(
        [node], kinds, [name for name in outputs if name], constants, opset=21,
        domains={MICROSOFT: 1},
        output_types={name: TensorProto.FLOAT for name in outputs},
    )  # fmt: skip
    return model, given


def _check(
    op: str,
    inputs: Inputs,
    outputs: Sequence[str] = ("y",),
    fixed: Sequence[int] = (),
    **attrs: Any,
) -> None:
    model, given = _model(op, inputs, outputs, fixed, **attrs)
    assert_like_reference(model, given, tolerance=2e-5)


B, S, H, D = 2, 3, 2, 4
HIDDEN = H * D


def _projected(length: int = S) -> list[np.ndarray]:
    return [_floats(B, length, 5), _floats(5, 3 * HIDDEN), _floats(3 * HIDDEN)]


MASKS = {
    "none": None,
    "ends": np.asarray([2, 3], "int32"),
    "ends and starts": np.asarray([3, 3, 1, 0], "int32"),
    "keys": np.asarray([[1, 1, 0], [1, 1, 1]], "int32"),
    "queries and keys": np.asarray(
        [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 1, 1], [0, 1, 1], [1, 0, 1]]], "int32"
    ),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_masks(mask: str, causal: int) -> None:
    _check(
        "Attention", [*_projected(), MASKS[mask]], fixed=(1, 2), num_heads=H, unidirectional=causal
    )


def test_attention_with_a_cache() -> None:
    past = _floats(2, B, H, 2, D)
    _check(
        "Attention", [*_projected(), None, past], ("y", "present"), num_heads=H, unidirectional=1,
        scale=0.3,
    )  # fmt: skip


def test_attention_with_an_added_bias() -> None:
    _check("Attention", [*_projected(), None, None, _floats(1, H, S, S)], num_heads=H)


def test_attention_whose_values_have_their_own_size() -> None:
    sizes = [HIDDEN, HIDDEN, 2 * H]
    inputs = [_floats(B, S, 5), _floats(5, sum(sizes)), _floats(sum(sizes))]
    _check("Attention", inputs, num_heads=H, qkv_hidden_sizes=sizes)


def _apart(length: int = S, keys: int = S) -> list[np.ndarray]:
    return [_floats(B, length, HIDDEN), _floats(B, keys, HIDDEN), _floats(B, keys, HIDDEN)]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(with_bias: bool, causal: int) -> None:
    bias = _floats(3 * HIDDEN) if with_bias else None
    _check("MultiHeadAttention", [*_apart(), bias], num_heads=H, unidirectional=causal)


def test_multi_head_attention_to_other_keys_with_masks() -> None:
    keys = 5
    mask = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], "int32")
    added = _floats(B, 1, S, keys)
    _check("MultiHeadAttention", [*_apart(S, keys), None, mask, added], num_heads=H)
    ends = np.asarray([3, 4], "int32")
    _check("MultiHeadAttention", [*_apart(S, keys), None, ends], num_heads=H)


def test_multi_head_attention_with_a_cache() -> None:
    past = [_floats(B, H, 2, D), _floats(B, H, 2, D)]
    _check(
        "MultiHeadAttention", [*_apart(), None, None, None, *past], ("y", "key", "value"),
        num_heads=H, unidirectional=1,
    )  # fmt: skip


def test_multi_head_attention_to_projected_keys() -> None:
    keys = [_floats(B, H, 5, D), _floats(B, H, 5, D)]
    _check("MultiHeadAttention", [_floats(B, S, HIDDEN), *keys], num_heads=H)


def _apply(op: str, inputs: Inputs, **attrs: Any) -> list[np.ndarray]:
    model, given = _model(op, inputs, **attrs)
    return np.asarray(relaxc.compile(model, threads=1, progress=False)(**given))  # type: ignore


def test_packed_inputs_equal_inputs_apart() -> None:
    q, k, v = _apart()
    parts = [x.reshape(B, S, H, 1, D) for x in (q, k, v)]
    model, given = _model("MultiHeadAttention", [q, k, v], num_heads=H)
    expected = run_reference(model, given)[0]
    packed = _apply("MultiHeadAttention", [np.concatenate(parts, 3)], num_heads=H)
    half = _apply("MultiHeadAttention", [q, np.concatenate(parts[1:], 3)], num_heads=H)
    np.testing.assert_allclose(packed, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(half, expected, rtol=2e-5, atol=2e-5)


TABLE = 16


def _angles(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    angles = RNG.standard_normal((TABLE, pairs))
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("first", [False, True])
def test_rotary_embedding(interleaved: int, first: bool) -> None:
    places = np.asarray([4] if first else [[0, 5, 2], [1, 3, 9]], "int64")
    _check(
        "RotaryEmbedding", [_floats(B, S, H * 8), places, *_angles(4)], fixed=(2, 3),
        interleaved=interleaved,
    )  # fmt: skip
    _check(
        "RotaryEmbedding", [_floats(B, H, S, 8), places, *_angles(2)], interleaved=interleaved,
        rotary_embedding_dim=4, num_heads=H, scale=2.0, is_packed_batching=1,
    )  # fmt: skip


HEADS, GROUPS, SIZE = 4, 2, 16


def _group_query(fresh: int, lengths: list[int], old: int, **attrs: Any) -> tuple[list[Any], Any]:
    """Return inputs and attributes of GroupQueryAttention; `old` is the cache's capacity."""
    total = max(lengths)
    inputs = [
        _floats(B, fresh, HEADS * SIZE), _floats(B, fresh, GROUPS * SIZE),
        _floats(B, fresh, GROUPS * SIZE),
        *([_floats(B, GROUPS, old, SIZE), _floats(B, GROUPS, old, SIZE)] if old else [None] * 2),
        np.asarray(lengths, "int32") - 1, np.asarray(total, "int32"),
    ]  # fmt: skip
    return inputs, {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}


CACHED = ("y", "key", "value")


@pytest.mark.parametrize("fixed", [(), (6,)])
def test_group_query_attention_of_a_prompt(fixed: tuple[int, ...]) -> None:
    inputs, attrs = _group_query(5, [5, 5], 0)
    _check("GroupQueryAttention", inputs, CACHED, fixed, **attrs)


def test_group_query_attention_with_rotation() -> None:
    inputs, attrs = _group_query(5, [5, 5], 0, do_rotary=1)
    _check("GroupQueryAttention", [*inputs, *_angles(8)], CACHED, (6,), **attrs)
    inputs, attrs = _group_query(1, [6, 6], 5, do_rotary=1, rotary_interleaved=1)
    _check("GroupQueryAttention", [*inputs, *_angles(8)], CACHED, (6,), **attrs)


@pytest.mark.parametrize(
    "attributes",
    [{"softcap": 2.0}, {"local_window_size": 2}, {"smooth_softmax": 1}, {"scale": 0.5}],
)
def test_group_query_attention_variants(attributes: dict[str, Any]) -> None:
    inputs, attrs = _group_query(5, [5, 5], 0, **attributes)
    _check("GroupQueryAttention", inputs, CACHED, (6,), **attrs)


def test_group_query_attention_with_packed_inputs() -> None:
    (q, k, v, *rest), attrs = _group_query(1, [6, 6], 5)
    packed = np.concatenate([q, k, v], 2)
    _check("GroupQueryAttention", [packed, None, None, *rest], CACHED, (6,), **attrs)


def test_group_query_attention_of_samples_filled_to_different_lengths() -> None:
    inputs, attrs = _group_query(1, [6, 4], 5)
    model, given = _model("GroupQueryAttention", inputs, CACHED, (6,), **attrs)
    expected = run_reference(model, given)
    compiled = relaxc.compile(model, threads=1, progress=False)
    got = compiled(**given)
    np.testing.assert_allclose(got[0], expected[0], rtol=2e-5, atol=2e-5)
    for mine, theirs in zip(got[1:], expected[1:], strict=True):
        for sample, length in enumerate([6, 4]):  # what is behind is unspecified
            np.testing.assert_array_equal(mine[sample, :, :length], theirs[sample, :, :length])
    for wrong in (-1, 6):
        with pytest.raises(relaxc.RunError, match="the last token of a sample is not between"):
            compiled(**{**given, "x5": np.asarray([5, wrong], "int32")})


def test_group_query_attention_names_the_capacity_of_its_cache() -> None:
    """Kernels whose every index repeats max(past, total) compile for 40 seconds."""
    inputs, attrs = _group_query(1, [6, 4], 5, softcap=2.0)
    model, _ = _model("GroupQueryAttention", inputs, CACHED, **attrs)
    sizes = {"x3": {2: "past"}, "x4": {2: "past"}}
    module = import_onnx(model, dynamic_shapes=sizes).module
    kernels = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    dims = [d for func in kernels for p in func.params if hasattr(p, "shape") for d in p.shape]
    assert any(isinstance(dim, tirx.Var) and "capacity" in dim.name for dim in dims)
    assert not any(isinstance(dim, tirx.Max) for dim in dims)


def test_decoder_attention_of_one_token_is_attention() -> None:
    # ONNX Runtime takes a shared buffer only, so its MultiHeadAttention is asked.
    inputs = _apart(1, 1)
    past = [_floats(B, H, 4, D), _floats(B, H, 4, D)]
    outputs = ("y", "key", "value")
    same, given = _model(
        "MultiHeadAttention", [*inputs, None, None, None, *past], outputs, num_heads=H
    )
    expected = run_reference(same, given)
    model, given = _model(
        "DecoderMaskedMultiHeadAttention", [*inputs, None, None, *past], outputs, num_heads=H
    )
    for mine, theirs in zip(run_imported(model, given), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_gated_relative_position_bias() -> None:
    queries, bias = _floats(B, S, HIDDEN), _floats(HIDDEN)
    positions, weight, shift, scale = (
        _floats(1, H, S, S), _floats(D, 6), _floats(6), _floats(1, H, 1, 1),
    )  # fmt: skip
    model, given = _model(
        "GatedRelativePositionBias", [queries, bias, positions, weight, shift, scale], num_heads=H
    )
    heads = (queries + bias).reshape(B, S, H, D).transpose(0, 2, 1, 3)
    gates = (heads @ weight + shift).reshape(B, H, S, 2, 3).sum(-1)
    update, reset = np.split(1 / (1 + np.exp(-gates)), 2, axis=-1)
    expected = (update * (reset * scale - 1) + 2) * positions
    np.testing.assert_allclose(run_imported(model, given)[0], expected, rtol=1e-4, atol=1e-5)


def test_shared_buffers_are_refused() -> None:
    model, _ = _model("Attention", _projected(), num_heads=H, past_present_share_buffer=1)
    with pytest.raises(UnsupportedOperator, match="share"):
        import_onnx(model)


def test_the_scale_of_a_symbolic_hidden_size() -> None:
    """The keys say the size of a head; where nothing does, the default scale is unknown."""
    inputs = [_floats(B, length, HIDDEN) for length in (S, 5, 5)]
    model, given = _model("MultiHeadAttention", inputs, num_heads=H)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "hidden"
    assert_like_reference(model, given, tolerance=2e-5)
    for value in model.graph.input[1:]:
        value.type.tensor_type.shape.dim[2].dim_param = "hidden"
    with pytest.raises(UnsupportedOperator, match="without the attribute scale"):
        import_onnx(model)
