"""Einsum: contraction by an equation, as permutations, sums and batched matrix products."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import Dim, dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.einsum_equation import terms_of
from frontends.onnx.op import Op
from frontends.onnx.operators.matmul import product as matrix_product
from frontends.onnx.registry import converter


@dataclass(frozen=True)
class _Term:
    """A tensor and a label for each of its axes."""

    expr: relax.Expr
    labels: tuple[str, ...]


@converter("Einsum")
def einsum(op: Op) -> relax.Expr:
    """Contract the operands from left to right; axes of one label broadcast, as in numpy.einsum."""
    terms, result = _parse(op)
    contraction = _Contraction(op)
    terms, sizes = contraction.agree(terms)
    for label in result:
        if label not in sizes and not label.startswith("..."):
            raise InvalidModel(f"label {label!r} of the result is in no operand")
    todo = [contraction.simplify(term, sizes) for term in terms]
    while len(todo) > 1:
        left, right, *others = todo
        needed = set(result).union(*(term.labels for term in others))
        todo = [contraction.product(left, right, needed), *others]
    last = contraction.total(todo[0], set(result))
    return contraction.arrange(last, result)


def _parse(op: Op) -> tuple[list[_Term], tuple[str, ...]]:
    """Return the operands with their labels, and the result's labels.

    The axes of an ellipsis are labelled by their distance from its end: "...1", "...0".
    """
    equation = op.attr("equation")
    patterns, right = terms_of(equation)
    if len(patterns) != len(op.inputs):
        raise InvalidModel(f"equation {equation!r} is not for {len(op.inputs)} operands")
    terms, longest = [], 0
    for place, pattern in enumerate(patterns):
        spread = op.ndim(place) - len(pattern.replace("...", ""))
        if spread < 0 or (spread and "..." not in pattern):
            raise InvalidModel(f"{pattern!r} of equation {equation!r} has rank {op.ndim(place)} ")
        longest = max(longest, spread)
        terms.append(_Term(op.x(place), _labels(pattern, spread)))
    if right is not None:
        return terms, _labels(right, longest)
    # Without a result, labels that occur once, in alphabetical order, after the ellipsis.
    letters = Counter("".join(patterns).replace(".", ""))
    once = sorted(letter for letter, count in letters.items() if count == 1)
    dots = "..." if any("..." in pattern for pattern in patterns) else ""
    return terms, _labels(dots + "".join(once), longest)


def _labels(pattern: str, spread: int) -> tuple[str, ...]:
    head, dots, tail = pattern.partition("...")
    middle = [f"...{number}" for number in reversed(range(spread))] if dots else []
    return (*head, *middle, *tail)


class _Contraction:
    """Operations on labelled tensors."""

    def __init__(self, op: Op) -> None:
        self._op = op

    def sizes(self, term: _Term) -> dict[str, Dim]:
        return dict(zip(term.labels, dims_of(term.expr), strict=True))

    def agree(self, terms: list[_Term]) -> tuple[list[_Term], dict[str, Dim]]:
        """Return the terms with one size for each label, and the sizes; known ones stay 1."""
        given: dict[str, list[Dim]] = {}
        for term in terms:
            for label, dim in zip(term.labels, dims_of(term.expr), strict=True):
                given.setdefault(label, []).append(dim)
        broadcasting, title = self._op.builder.sizes, self._op.title
        sizes, loose = {}, set()
        for label, dims in given.items():
            (sizes[label],), axes = broadcasting.common_dims([[dim] for dim in dims], title)
            if axes:
                loose.add(label)
        agreed = []
        for term in terms:
            common = [sizes[label] for label in term.labels]
            axes = {axis for axis, label in enumerate(term.labels) if label in loose}
            expr = broadcasting.stretched(term.expr, common, axes, title)
            agreed.append(_Term(expr, term.labels))
        return agreed, sizes

    def simplify(self, term: _Term, sizes: dict[str, Dim]) -> _Term:
        """Take the diagonal of repeated labels, and drop axes of size 1 that broadcast."""
        unique = tuple(dict.fromkeys(term.labels))
        if len(unique) != len(term.labels):
            places = [unique.index(label) for label in term.labels]
            firsts = [term.labels.index(label) for label in unique]

            def diagonal(x: te.Tensor) -> te.Tensor:
                shape = [x.shape[first] for first in firsts]
                return te.compute(shape, lambda *i: x(*(i[p] for p in places)), name="diagonal")

            term = _Term(self._op.te(diagonal, term.expr, name="diagonal"), unique)
        ones = [
            place
            for place, (label, dim) in enumerate(self.sizes(term).items())
            if is_static(dim) and dim == 1 and not (is_static(sizes[label]) and sizes[label] == 1)
        ]
        if not ones:
            return term
        kept = tuple(label for k, label in enumerate(term.labels) if k not in ones)
        return _Term(self._op.emit(R.squeeze(term.expr, ones)), kept)

    def total(self, term: _Term, needed: set[str]) -> _Term:
        """Sum over the labels that nobody needs."""
        places = [k for k, label in enumerate(term.labels) if label not in needed]
        if not places:
            return term
        kept = tuple(label for label in term.labels if label in needed)
        return _Term(self._op.emit(R.sum(term.expr, places)), kept)

    def arrange(self, term: _Term, labels: tuple[str, ...]) -> relax.Expr:
        """Permute to `labels`; those that the term lacks are axes of size 1."""
        present = [label for label in labels if label in term.labels]
        expr, places = term.expr, [term.labels.index(label) for label in present]
        if places != list(range(len(places))):
            expr = self._op.emit(R.permute_dims(expr, places))
        missing = [k for k, label in enumerate(labels) if label not in term.labels]
        return self._op.emit(R.expand_dims(expr, missing)) if missing else expr

    def product(self, left: _Term, right: _Term, needed: set[str]) -> _Term:
        """Multiply two terms and sum over their common labels that nobody needs."""
        left = self.total(left, needed | set(right.labels))
        right = self.total(right, needed | set(left.labels))
        common = [label for label in left.labels if label in right.labels]
        batch = [label for label in common if label in needed]
        summed = [label for label in common if label not in needed]
        rows = [label for label in left.labels if label not in common]
        columns = [label for label in right.labels if label not in common]
        labels = (*batch, *rows, *columns)
        if not summed:
            sides = [self.arrange_open(term, labels) for term in (left, right)]
            return _Term(self._op.emit(R.multiply(*sides)), labels)
        sizes = self.sizes(left) | self.sizes(right)
        product = self._op.arithmetic.product
        groups = [[sizes[label] for label in group] for group in (batch, rows, summed, columns)]
        flat = [product(group) for group in groups]

        def matrix(term: _Term, order: list[str], shape: list[Dim]) -> relax.Expr:
            return self._op.emit(
                exact_reshape(self.arrange(term, tuple(order)), relax.ShapeExpr(shape))
            )

        a = matrix(left, [*batch, *rows, *summed], [flat[0], flat[1], flat[2]])
        b = matrix(right, [*batch, *summed, *columns], [flat[0], flat[2], flat[3]])
        result = self._op.emit(matrix_product(self._op, a, b))
        shape = relax.ShapeExpr([*groups[0], *groups[1], *groups[3]])
        return _Term(self._op.emit(exact_reshape(result, shape)), labels)

    def arrange_open(self, term: _Term, labels: tuple[str, ...]) -> relax.Expr:
        """Permute to `labels`, with axes of size 1 for those that the term lacks."""
        present = tuple(label for label in labels if label in term.labels)
        expr = self.arrange(term, present)
        missing = [k for k, label in enumerate(labels) if label not in term.labels]
        return self._op.emit(R.expand_dims(expr, missing)) if missing else expr
