"""Text: counting of n-grams of token numbers; strings themselves are refused."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.computations.count_ngrams import count_ngrams
from frontends.computations.exact_reshape import exact_reshape
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.registry import converter, refuse

refuse(
    *("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch"),
    reason="strings are no tensors of numbers; process text before the model",
)


@converter("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(op: Op) -> relax.Expr:
    """Count the n-grams of a pool in each row; weigh the counts, or whether there are any."""
    pool = op.attr("pool_int64s")
    if not pool:
        raise op.unsupported("strings are not supported; give token numbers")
    columns = [int(column) for column in op.attr("ngram_indexes")]
    least, most = int(op.attr("min_gram_length")), int(op.attr("max_gram_length"))
    starts = [*op.attr("ngram_counts"), len(pool)]
    place: dict[tuple[int, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(zip(starts, starts[1:], strict=False), 1):
        for first in range(start, end - length + 1, length):
            if number >= len(columns):
                raise InvalidModel(f"{len(columns)} ngram_indexes for more n-grams")
            if least <= length <= most:
                place[tuple(pool[first : first + length])] = columns[number]
            number += 1
    size = max(columns) + 1
    shape = list(op.shape())
    if len(shape) > 2:
        raise InvalidModel(f"an input of rank {len(shape)}")
    rows = [1, op.arithmetic.product(shape)] if len(shape) < 2 else shape
    result_shape = [size] if len(shape) < 2 else [shape[0], size]
    if not place:
        return R.zeros(relax.ShapeExpr(result_shape), "float32")
    grams = np.zeros((len(place), max(len(gram) for gram in place)), "int64")
    for row, gram in enumerate(place):
        grams[row, : len(gram)] = gram
    x = op.x()
    if op.dtype() != "int64":
        x = op.emit(R.astype(x, "int64"))
    skips = int(op.attr("max_skip_count", 0))
    counts = op.te(
        lambda x, grams, sizes, into: count_ngrams(x, grams, sizes, into, size, skips),
        op.emit(exact_reshape(x, relax.ShapeExpr(rows))),
        op.const(grams, "int64"),
        op.const([len(gram) for gram in place], "int64"),
        op.const(list(place.values()), "int64"),
    )
    counts = op.emit(exact_reshape(counts, relax.ShapeExpr(result_shape)))
    mode, weights = op.attr("mode"), op.attr("weights")
    if mode == "IDF":
        counts = op.emit(R.minimum(counts, op.const(1.0, "float32")))
    if mode == "TF" or not weights:
        return counts
    return R.multiply(counts, op.const(weights, "float32"))
