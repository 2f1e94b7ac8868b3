"""Broadcasting of tensors whose sizes are known only when the model runs.

Relax takes a symbolic size as not 1, and gives no shape to a result whose operands' sizes it
cannot compare. So operands get the same sizes first. Two sizes stand in one of three relations:

- Both are known: they are compared now.
- They are computed from a common symbol, such as the two sides of a skip connection over a
  symbolic height. They are equal without a proof; that is stated, and a run checks it.
- They have nothing in common, or one of them is known: either may be 1, and broadcasts then. A
  kernel copies the operand to the common size; a run checks that the sizes fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax, tirx

from frontends.computations.broadcast import broadcast_loosely
from frontends.dims import Dim, all_static, dims_of, dtype_of, is_static, prim, symbols_of
from frontends.errors import InvalidModel

if TYPE_CHECKING:
    from frontends.control_flow.private_function import Frame
    from frontends.onnx.graph_builder import GraphBuilder


class Broadcasting:
    """Gives operands sizes that agree; `title` names them in errors at run time."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder, self._arithmetic = builder, builder.arithmetic
        # The greater one of two sizes, and the function that knows it; and of which two it is.
        self._symbols: dict[frozenset[str], tuple[Frame | None, tirx.Var]] = {}
        self._parts: dict[str, frozenset[str]] = {}

    def aligned(self, tensors: Sequence[relax.Expr], title: str) -> list[relax.Expr]:
        """Return tensors that broadcast with each other."""
        shapes = [dims_of(x) for x in tensors]
        if all(all_static(shape) for shape in shapes):
            return list(tensors)
        common, loose = self.common_dims(shapes, title)
        return [self.stretched(x, common, loose, title) for x in tensors]

    def fitted(self, x: relax.Expr, dims: Sequence[Dim], title: str) -> relax.Expr:
        """Return `x` so that it broadcasts to `dims`, which it does not change: one way."""
        have = dims_of(x)
        if len(have) > len(dims):
            raise InvalidModel(f"a tensor of shape {have} does not broadcast to {list(dims)}")
        loose: set[int] = set()
        for axis, (size, wanted) in enumerate(zip(reversed(have), reversed(dims), strict=False)):
            if self._surely_fits(size, wanted):
                continue
            if is_static(size) and is_static(wanted):
                raise InvalidModel(f"a tensor of shape {have} does not broadcast to {list(dims)}")
            if self._are_stated(size, wanted):
                continue
            size = prim(size)
            self._require(tirx.any(size == 1, size == prim(wanted)), title)
            loose.add(len(dims) - 1 - axis)
        return self.stretched(x, dims, loose, title)

    def joined(self, tensors: Sequence[relax.Expr], axis: int, title: str) -> list[relax.Expr]:
        """Return tensors that agree on all axes but one; nothing broadcasts."""
        shapes = [dims_of(x) for x in tensors]
        common = [known_one(sizes) for sizes in zip(*shapes, strict=True)]
        results = []
        for x, shape in zip(tensors, shapes, strict=True):
            wanted = [_own_if_known(dim, other) for dim, other in zip(shape, common, strict=True)]
            wanted[axis] = shape[axis]
            results.append(self.stated(x, wanted, title))
        return results

    def multiplied(self, a: relax.Expr, b: relax.Expr, title: str) -> list[relax.Expr]:
        """Return the operands of a matrix product: batch axes broadcast, as in numpy.matmul."""
        left, right = dims_of(a), dims_of(b)
        place = max(len(right) - 2, 0)
        depth = known_one([left[-1], right[place]])
        left[-1], right[place] = (_own_if_known(dim, depth) for dim in (left[-1], right[place]))
        a, b = self.stated(a, left, title), self.stated(b, right, title)
        common, loose = self.common_dims([left[:-2], right[:-2]], title)
        results = []
        for x in (a, b):
            last = dims_of(x)[-2:]
            results.append(self.stretched(x, [*common, *last], loose, title))
        return results

    def stated(self, x: relax.Expr, dims: Sequence[Dim], title: str) -> relax.Expr:
        """State the shape of `x`; what is not known to be equal is checked at run time."""
        if self._all_equal(dims_of(x), dims):
            return x
        return self._builder.match_tensor(x, dims, dtype_of(x), f"{title}_operand")

    def common_dims(
        self, shapes: Sequence[Sequence[Dim]], title: str, *, related_are_equal: bool = True
    ) -> tuple[list[Dim], set[int]]:
        """Return the shape of tensors broadcast together, and the axes on which a size may be 1.

        Args:
            shapes: Of the tensors.
            title: Names them in errors.
            related_are_equal: Whether sizes with a common symbol are stated to be equal.

        Raises:
            InvalidModel: If two sizes that are known differ, and neither is 1.
        """
        common: list[Dim] = [1] * max(len(shape) for shape in shapes)
        loose: set[int] = set()
        stated: list[tuple[int, Dim]] = []
        for shape in shapes:
            for axis, dim in enumerate(shape, len(common) - len(shape)):
                have = common[axis]
                if (is_static(have) and have == 1) or self._arithmetic.equal(have, dim):
                    common[axis] = dim
                elif is_static(dim) and dim == 1:
                    continue
                elif is_static(have) and is_static(dim):
                    shown = " and ".join(str(list(dims)) for dims in shapes)
                    raise InvalidModel(f"sizes {have} and {dim} are not broadcastable ({shown})")
                elif related_are_equal and self._are_stated(have, dim):
                    stated.append((axis, dim))
                elif is_static(dim) or is_static(have):
                    known, read = (dim, have) if is_static(dim) else (have, dim)
                    self._require(tirx.any(read == 1, read == known), title)
                    common[axis] = known
                    loose.add(axis)
                else:
                    common[axis] = self._greater(have, dim, title)
                    loose.add(axis)
        for axis, dim in stated:
            if axis in loose and not is_static(dim):
                self._require(tirx.any(dim == 1, dim == common[axis]), title)
        return common, loose

    def stretched(
        self, x: relax.Expr, common: Sequence[Dim], loose: set[int], title: str
    ) -> relax.Expr:
        """Return `x` with the sizes of `common`, but for those that are known.

        Args:
            x: The tensor; its last axes are those of `common`.
            common: The sizes to broadcast to.
            loose: Axes of `common` on which `x` may have size 1; a run has checked that.
            title: Names it in errors.
        """
        shape = dims_of(x)
        first = len(common) - len(shape)
        agreed, wanted, stretches = list(shape), list(shape), False
        for axis, dim in enumerate(shape):
            target = common[first + axis]
            known = is_static(dim) and (is_static(target) or dim == 1)
            if known or self._arithmetic.equal(dim, target):
                continue
            wanted[axis] = target
            if first + axis in loose:
                stretches = True
            else:
                agreed[axis] = target
        x = self.stated(x, agreed, title)
        if not stretches:
            return x
        return self._builder.emit_te(broadcast_loosely, x, name=f"{title}_broadcast", dims=wanted)

    def _greater(self, left: Dim, right: Dim, title: str) -> Dim:
        """Return the size that two sizes broadcast to, the same symbol wherever these two meet.

        It is a symbol, not the expression: TVM's analysis of loops is slow on nested selections,
        and what has the size of one of the two need not have the size of the result.
        """
        names = str(left), str(right)
        for size, other in ((0, 1), (1, 0)):
            if names[other] in self._parts.get(names[size], ()):
                return (left, right)[size]
        parts, frame = frozenset(names), self._builder.functions.frame
        home, symbol = self._symbols.get(parts, (None, None))
        if symbol is None or home is not frame:
            self._require(tirx.any(left == 1, right == 1, left == right), title)
            chosen = tirx.Select(left == 1, right, left)
            symbol = self._builder.name_size(chosen, f"{title}_size")
            self._symbols[parts], self._parts[str(symbol)] = (frame, symbol), parts
        return symbol

    def _require(self, condition: tirx.Expr, title: str) -> None:
        self._builder.require(condition, f"{title}_broadcasts")

    def _surely_fits(self, size: Dim, wanted: Dim) -> bool:
        return (is_static(size) and size == 1) or self._arithmetic.equal(size, wanted)

    def _are_stated(self, left: Dim, right: Dim) -> bool:
        """Tell whether two sizes, not both known, are stated to be equal."""
        one = any(self._arithmetic.is_nonnegative(1 - size) for size in (left, right))
        return not one and bool(symbols_of(left) & symbols_of(right))

    def _all_equal(self, left: Sequence[Dim], right: Sequence[Dim]) -> bool:
        return all(self._arithmetic.equal(a, b) for a, b in zip(left, right, strict=True))


def known_one(dims: Sequence[Dim]) -> Dim:
    """Return the size that is known now, if one is, else the first."""
    return next((dim for dim in dims if is_static(dim)), dims[0])


def _own_if_known(own: Dim, other: Dim) -> Dim:
    """Return the size that a tensor is stated to have; two known ones are for Relax to compare."""
    return own if is_static(own) else other
