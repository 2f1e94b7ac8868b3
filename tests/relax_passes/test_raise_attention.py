"""Attention written in single operators becomes R.nn.attention, in each exporter's style."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import relax, tirx

from relax_passes.pipeline import Pipeline, default_pipeline
from relax_passes.split_transposed_batch import split_transposed_batch
from tests.relax_passes.attention_graphs import (
    FLAT,
    LOWEST,
    SQUARE,
    B,
    D,
    Emit,
    H,
    R,
    S,
    T,
    attention_module,
    const,
    heads,
    inputs,
    joined,
    plain,
    raised,
    scaled,
    the_attention,
)
from tests.relax_passes.pass_checks import check, context, operators


def test_transposes_go_away() -> None:
    mod = attention_module(lambda e, q, k, v: plain(e, q, k, v, score=scaled), *FLAT)
    changed = raised(mod, *inputs(FLAT))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}
    assert float(the_attention(changed).attrs.scale) == pytest.approx(1 / math.sqrt(D))


@pytest.mark.parametrize("shifted", [True, False])
def test_a_softmax_in_elementary_operators(shifted: bool) -> None:
    """The phase finds the softmax before it looks for attention around one."""

    def written_out(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        q, k, v = (heads(emit, x) for x in (q, k, v))
        swapped = emit(R.permute_dims(k, [0, 1, 3, 2]))
        scores = scaled(emit, emit(R.matmul(q, swapped)))
        if shifted:
            scores = emit(scores)
            scores = R.subtract(scores, emit(R.max(scores, -1, keepdims=True)))
        powers = emit(R.exp(emit(scores)))
        weights = emit(R.divide(powers, emit(R.sum(powers, -1, keepdims=True))))
        return joined(emit, emit(R.matmul(weights, v)))

    phase = Pipeline({"raise": default_pipeline().phases["raise"]})
    changed = phase.run(attention_module(written_out, *FLAT), context())
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}


def root_on_both(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
    """Write it as PyTorch's exporters write scaled_dot_product_attention."""
    root = const(D**-0.25)
    q, k, v = (heads(emit, x) for x in (q, k, v))
    flat = emit(R.reshape(k, (B * H, T, D)))
    swapped = emit(R.permute_dims(flat, [0, 2, 1]))
    swapped = emit(R.reshape(swapped, (B, H, D, T)))
    scores = emit(R.matmul(emit(R.multiply(q, root)), emit(R.multiply(swapped, root))))
    weights = emit(R.nn.softmax(scores, -1))
    weights = emit(R.where(emit(R.isnan(weights)), const(0), weights))
    return joined(emit, emit(R.matmul(weights, v)))


def test_a_scale_split_over_both_operands() -> None:
    mod = attention_module(root_on_both, *FLAT)
    mod = check(split_transposed_batch, mod, *inputs(FLAT))
    changed = raised(mod, *inputs(FLAT))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}
    assert float(the_attention(changed).attrs.scale) == pytest.approx(1 / math.sqrt(D))


def test_axes_of_k_swapped_with_its_heads() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        view = emit(R.reshape(k, (B, T, H, D)))
        swapped = emit(R.permute_dims(view, [0, 2, 3, 1]))
        q, v = heads(emit, q), heads(emit, v)
        scores = emit(R.multiply(const(0.5), emit(R.matmul(q, swapped))))
        weights = emit(R.nn.softmax(scores, 3))
        return joined(emit, emit(R.matmul(weights, v)))

    changed = raised(attention_module(build, *FLAT), *inputs(FLAT))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}


def test_heads_joined_with_the_batch() -> None:
    """Products of rank 3, the mask added at rank 4: OPT, BART and MultiheadAttention."""

    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        q, k, v = (heads(emit, x) for x in (q, k, v))
        q = emit(R.reshape(q, (B * H, S, D)))
        k, v = (emit(R.reshape(x, (B * H, T, D))) for x in (k, v))
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        scores = emit(R.add(emit(R.reshape(scores, (B, H, S, T))), mask))
        weights = emit(R.nn.softmax(emit(R.reshape(scores, (B * H, S, T))), -1))
        result = emit(R.matmul(weights, v))
        return joined(emit, emit(R.reshape(result, (B, H, S, D))))

    shapes = (*FLAT, (B, 1, S, T))
    changed = raised(attention_module(build, *shapes), *inputs(shapes))
    assert operators(changed) == {"reshape": 4, "nn.attention_bias": 1}


def test_products_of_rank_three_alone_have_one_head() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(scores, -1)), v)

    changed = raised(attention_module(build, *FLAT), *inputs(FLAT))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}


@pytest.mark.parametrize("shape", [(B, H, S, T), (B, 1, 1, T), (1, H, S, T), (S, T), (T,)])
def test_a_mask_of_any_shape_is_added(shape: tuple[int, ...]) -> None:
    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        return plain(emit, q, k, v, score=lambda e, s: e(R.add(mask, scaled(e, s))))

    shapes = (*FLAT, shape)
    changed = raised(attention_module(build, *shapes), *inputs(shapes))
    assert operators(changed)["nn.attention_bias"] == 1
    assert the_attention(changed).args[3].ty.ndim == 4


@pytest.mark.parametrize("hides", [True, False])
@pytest.mark.parametrize("lowest", [LOWEST, -math.inf])
def test_a_choice_between_score_and_lowest_number(hides: bool, lowest: float) -> None:
    def build(
        emit: Emit, mask: relax.Expr, q: relax.Expr, k: relax.Expr, v: relax.Expr
    ) -> relax.Expr:
        def score(e: Emit, s: relax.Expr) -> relax.Expr:
            s = scaled(e, s)
            pair = (const(lowest), s) if hides else (s, const(lowest))
            return e(R.where(mask, *pair))

        return plain(emit, q, k, v, score=score)

    shapes = ((B, 1, S, T), *FLAT)
    mod = attention_module(build, *shapes, dtypes=("bool",))
    mask = np.random.default_rng(1).random((B, 1, S, T)) < 0.4
    mask[..., 0] = not hides  # each row sees one key
    changed = raised(mod, mask, *inputs(FLAT))
    assert operators(changed)["nn.attention_bias"] == 1


@pytest.mark.parametrize(("keys", "name"), [(S, "TopLeft"), (T, "TopLeft"), (T, "BottomRight")])
@pytest.mark.parametrize("batch", [1, B])
def test_a_constant_causal_mask_becomes_a_flag(keys: int, name: str, batch: int) -> None:
    offset = keys - S if name == "BottomRight" else 0
    seen = np.tri(S, keys, offset, dtype=bool)
    mask = np.broadcast_to(np.where(seen, 0, LOWEST), (batch, 1, S, keys)).astype("float32")
    shapes = ((B, S, H * D), (B, keys, H * D), (B, keys, H * D))
    mod = attention_module(
        lambda e, q, k, v: plain(
            e, q, k, v, score=lambda e, s: e(R.add(scaled(e, s), relax.const(mask)))
        ),
        *shapes,
    )
    changed = raised(mod, *inputs(shapes))
    assert operators(changed)["nn.attention"] == 1
    assert the_attention(changed).attrs.causal_mask == name


def test_a_constant_mask_that_hides_nothing_is_dropped() -> None:
    mod = attention_module(
        lambda e, q, k, v: plain(
            e,
            q,
            k,
            v,
            score=lambda e, s: e(R.add(s, relax.const(np.zeros((B, 1, S, T), "float32")))),
        ),
        *FLAT,
    )
    changed = raised(mod, *inputs(FLAT))
    assert operators(changed)["nn.attention"] == 1
    assert the_attention(changed).attrs.causal_mask is None


def test_a_constant_window_stays_a_bias_of_the_size_it_varies_over() -> None:
    band = np.abs(np.arange(S)[:, None] - np.arange(S)) <= 1
    mask = np.broadcast_to(np.where(band, 0, LOWEST), (B, H, S, S)).astype("float32")
    mod = attention_module(
        lambda e, q, k, v: plain(
            e, q, k, v, score=lambda e, s: e(R.add(scaled(e, s), relax.const(mask)))
        ),
        *SQUARE,
    )
    bias = the_attention(raised(mod, *inputs(SQUARE))).args[3]
    assert [int(d) for d in bias.ty.shape.values] == [1, 1, S, S]


def test_a_causal_flag_and_a_bias_at_once() -> None:
    causal = np.where(np.tri(S, dtype=bool), 0, -np.inf).astype("float32")

    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, slopes: relax.Expr
    ) -> relax.Expr:
        def score(e: Emit, s: relax.Expr) -> relax.Expr:
            return e(R.add(e(R.add(scaled(e, s), slopes)), relax.const(causal)))

        return plain(emit, q, k, v, score=score)

    shapes = (*SQUARE, (1, H, 1, S))
    call = the_attention(raised(attention_module(build, *shapes), *inputs(shapes)))
    assert call.attrs.causal_mask == "TopLeft" and len(call.args) == 4


def repeated(emit: Emit, x: relax.Expr, style: str) -> relax.Expr:
    """Repeat each of (batch, 2, length, size)'s heads twice."""
    if style == "repeat":
        return emit(R.repeat(x, 2, 1))
    batch, few, length, size = x.ty.shape.values
    one = emit(R.expand_dims(x, 2))
    many = emit(R.broadcast_to(one, relax.ShapeExpr([batch, few, 2, length, size])))
    return emit(R.reshape(many, relax.ShapeExpr([batch, 2 * few, length, size])))


@pytest.mark.parametrize("style", ["repeat", "expand"])
def test_repeated_heads_are_not_stored(style: str) -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        q, k, v = heads(emit, q), heads(emit, k, 2), heads(emit, v, 2)
        k, v = (repeated(emit, x, style) for x in (k, v))
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2]))))
        weights = emit(R.nn.softmax(scaled(emit, scores), -1))
        return joined(emit, emit(R.matmul(weights, v)))

    shapes = ((B, S, H * D), (B, T, 2 * D), (B, T, 2 * D))
    changed = raised(attention_module(build, *shapes), *inputs(shapes))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}
    assert int(the_attention(changed).args[1].ty.shape.values[2]) == 2


def test_queries_stacked_over_shared_heads() -> None:
    """The heads of a group are rows of one product, as our ONNX importer writes it."""

    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        q, k, v = heads(emit, q), heads(emit, k, 2), heads(emit, v, 2)
        q = emit(R.multiply(emit(R.reshape(q, (B, 2, 2 * S, D))), const(0.3)))
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2]))))
        weights = emit(R.nn.softmax(emit(R.reshape(scores, (B, H, S, T))), -1))
        result = emit(R.matmul(emit(R.reshape(weights, (B, 2, 2 * S, T))), v))
        return joined(emit, emit(R.reshape(result, (B, H, S, D))))

    shapes = ((B, S, H * D), (B, T, 2 * D), (B, T, 2 * D))
    changed = raised(attention_module(build, *shapes), *inputs(shapes))
    assert operators(changed) == {"reshape": 4, "nn.attention": 1}


def test_a_guarded_row_without_a_key_gives_zeros() -> None:
    """The torch importer's form: a finite floor, and hidden weights cleared afterwards."""

    def build(
        emit: Emit, mask: relax.Expr, q: relax.Expr, k: relax.Expr, v: relax.Expr
    ) -> relax.Expr:
        q, k, v = (heads(emit, x) for x in (q, k, v))
        scores = scaled(emit, emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2])))))
        hidden = emit(R.logical_not(mask))
        weights = emit(R.nn.softmax(emit(R.where(hidden, const(LOWEST), scores)), -1))
        weights = emit(R.where(hidden, const(0), weights))
        return joined(emit, emit(R.matmul(weights, v)))

    mask = np.random.default_rng(1).random((B, 1, S, T)) < 0.5
    mask[0, 0, 1] = False
    mod = attention_module(build, (B, 1, S, T), *FLAT, dtypes=("bool",))
    changed = raised(mod, mask, *inputs(FLAT))
    assert operators(changed)["nn.attention_bias"] == 1


def test_a_floor_for_minus_infinity() -> None:
    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        q, k, v = (heads(emit, x) for x in (q, k, v))
        scores = emit(R.add(emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2])))), mask))
        hidden = emit(R.equal(scores, const(-math.inf)))
        weights = emit(R.nn.softmax(emit(R.where(hidden, const(LOWEST), scores)), -1))
        weights = emit(R.where(hidden, const(0), weights))
        return joined(emit, emit(R.matmul(weights, v)))

    shapes = (*FLAT, (B, 1, S, T))
    arrays = inputs(shapes)
    arrays[3][arrays[3] < 0] = -np.inf
    arrays[3][1, 0, 2] = -np.inf
    changed = raised(attention_module(build, *shapes), *arrays)
    assert operators(changed)["nn.attention_bias"] == 1


def test_symbolic_sizes() -> None:
    batch, rows = tirx.Var("batch", "int64"), tirx.Var("rows", "int64")
    shapes = ((batch, rows, H * D),) * 3

    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        return plain(emit, q, k, v, score=lambda e, s: e(R.add(scaled(e, s), mask)))

    mod = attention_module(build, *shapes, (batch, 1, 1, rows))
    arrays = inputs((*SQUARE, (B, 1, 1, S)))
    changed = raised(mod, *arrays)
    assert operators(changed) == {"reshape": 4, "nn.attention_bias": 1}
