"""Define, call and choose between private functions, while a function around them is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax, te, tirx

from frontends.control_flow.private_function import (
    Frame,
    PrivateFunction,
    declare_recursive,
    define,
)
from frontends.dims import Dim, DimArithmetic, as_dim, prim


class FunctionBuilder:
    """Builds private functions into a block builder, at any depth.

    Names that are given must be identifiers.

    Attributes:
        frame: The private function that is being built, None while it is `main`.
    """

    def __init__(
        self,
        block: relax.BlockBuilder,
        arithmetic: DimArithmetic,
        symbols: Callable[[], Iterable[tirx.Var]],
        fresh_symbol: Callable[[str], tirx.Var],
    ) -> None:
        """Build into `block`.

        Args:
            block: Builds the module; the function around is open in it.
            arithmetic: Compares sizes.
            symbols: Returns all symbols that there are.
            fresh_symbol: Returns a new one, named after a hint.
        """
        self.arithmetic, self.fresh_symbol = arithmetic, fresh_symbol
        self._block, self._symbols = block, symbols
        self.frame: Frame | None = None

    def define(
        self,
        name: str,
        run: Callable[[], tuple[Any, list[relax.Expr]]],
        own: Sequence[relax.Var] = (),
        chosen: Sequence[tirx.Var] = (),
        callee: tvm.ir.GlobalVar | None = None,
    ) -> PrivateFunction:
        """Build a private function; see `private_function.define`."""
        with self._inside(Frame(self.frame)) as frame:
            return define(self._block, name, frame, own, chosen, self._symbols(), run, callee)

    @contextmanager
    def _inside(self, frame: Frame) -> Iterator[Frame]:
        outer, self.frame = self.frame, frame
        try:
            yield frame
        finally:
            self.frame = outer

    def declare(self, like: PrivateFunction, name: str) -> PrivateFunction:
        """Return a function that may be called before `define` gives it its body."""
        return declare_recursive(self._block, like, name)

    def call(
        self, function: PrivateFunction, own: Sequence[relax.Expr] = (), sizes: Sequence[Dim] = ()
    ) -> relax.Expr:
        """Return a call of a function that this one or one around it defined."""
        arguments = [*own, *(self.here(var, function.home) for var in function.captured)]
        if function.symbols:
            given = [prim(size) for size in sizes]
            arguments.append(relax.ShapeExpr([*given, *function.symbols[len(given) :]]))
        return self._block.normalize(relax.Call(function.callee, arguments))

    def here(self, var: relax.Var, home: Frame | None) -> relax.Var:
        """Return a variable of `home` as it is called here, captured at each level between."""

        def inside(frame: Frame | None) -> relax.Var:
            return var if frame is home or frame is None else frame.capture(inside(frame.parent))

        return inside(self.frame)

    def branch(self, condition: relax.Expr, then: relax.Expr, other: relax.Expr) -> relax.Expr:
        """Return the value of one of two calls, as the boolean scalar `condition` says."""
        return relax.If(condition, relax.SeqExpr([], then), relax.SeqExpr([], other))

    def emit(self, expr: relax.Expr, name: str) -> relax.Var:
        """Bind an expression."""
        return self._block.emit(expr, name)

    def emit_te(
        self,
        compute: Callable[..., te.Tensor],
        *tensors: relax.Expr,
        name: str,
        dims: Sequence[Dim] = (),
    ) -> relax.Var:
        """Emit a call of the PrimFunc that a tensor expression describes.

        `compute` gets a TE tensor for each of `tensors` and then, if `dims` is given, their list:
        a PrimFunc has symbols of its own, so `compute` must not use the graph's.
        """
        extra = [list(dims)] if dims else []
        return self._block.emit_te(
            compute, *tensors, *extra, primfunc_name_hint=name.lower(), name_hint=name
        )

    def emit_tuple(
        self, expr: relax.Expr, name: str, types: Sequence[tuple[str, Sequence[Dim | None]]]
    ) -> list[relax.Var]:
        """Bind the tensors of a tuple; each has the dtype and dims given, None for a new symbol."""
        whole = self._block.emit(expr, name)
        items = []
        for place, (dtype, dims) in enumerate(types):
            item = self._block.emit(relax.TupleGetItem(whole, place))
            have = item.ty.shape
            have = list(have.values) if isinstance(have, relax.ShapeExpr) else None
            same = have is not None and all(
                dim is not None and self.arithmetic.equal(as_dim(size), dim)
                for size, dim in zip(have, dims, strict=True)
            )
            if not same:
                wanted = [self.fresh_symbol(name) if dim is None else dim for dim in dims]
                item = self.match_tensor(item, wanted, dtype)
            items.append(item)
        return items

    def match_tensor(
        self, expr: relax.Expr, dims: Sequence[Dim], dtype: str, name: str = ""
    ) -> relax.Var:
        """Bind `expr` with a shape that may define new symbols; it is checked at run time."""
        return self._block.match_cast(expr, relax.TensorType(list(dims), dtype), name)

    def known_symbols(self) -> frozenset[tirx.Var]:
        """Return the symbols that exist now: what a function built later may add is its own."""
        return frozenset(self._symbols())
