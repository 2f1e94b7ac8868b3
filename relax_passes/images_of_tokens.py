"""Tokens and images are one tensor in memory where the image is channels-last: only a view apart.

A vision transformer has its pixels as tokens (N, H*W, C), and convolves them as images
(N, C, H, W). Exporters write a transpose of tokens and then a view, or a view of the image and then
a transpose:

    reshape(permute(t, [0, 2, 1]), (N, C, H, W))  =  permute(reshape(t, (N, H, W, C)), [0, 3, 1, 2])
    permute(reshape(x, (N, C, H*W)), [0, 2, 1])   =  reshape(permute(x, [0, 2, 3, 1]), (N, H*W, C))
    f(permute(x, [0, 2, 3, 1]))                   =  permute(f(x), [0, 2, 3, 1])

On the right the transpose is of the image, so that `assign_layout` sees it: it is free where the
image is held as NHWC. An operator f of single elements joins the kernel that makes the image.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of, dimensions, equal_shapes, operator_name
from relax_passes.analysis.pointwise import UNARY
from relax_passes.analysis.readers import count_readers
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.layout.blocked import has_channels
from relax_passes.layout.transforms import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from relax_passes.lowering.rule import has_no_elements
from relax_passes.lowering.views import VIEWS
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

NAME = "images_of_tokens"
_SWAP = [0, 2, 1]


@graph_pass(name=NAME, phase="rewrite")
def images_of_tokens(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Write transposes between tokens and images as transposes of the image."""
    rewriter = _Images(mod)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"wrote {rewriter.count} transposes of tokens as transposes of images")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Images(CallRewriter):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._readers: Counter[relax.Var] = Counter()
        self._turned: set[relax.Var] = set()  # images transposed here, each for one view

    def read(self, func: relax.Function) -> None:
        """Look at a function that is visited next."""
        self._readers = count_readers(func)

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        name = operator_name(call)
        if f"relax.{name}" in VIEWS:
            return self._image(call)
        if name == "permute_dims" and axes_of(call) == _SWAP:
            return self._tokens(call)
        if f"relax.{name}" in UNARY:
            return self._map(call)
        return None

    def _image(self, view: tvm.ir.Call) -> relax.Expr | None:
        """Return a view of transposed tokens as a transposed view."""
        turned = self.look_up(view.args[0])
        if operator_name(turned) != "permute_dims" or axes_of(turned) != _SWAP:
            return None
        if not has_channels(view) or self._readers[view.args[0]] != 1:
            return None
        n, c, h, w = dimensions(view) or []
        have = dimensions(turned) or []
        if has_no_elements(view) or not have or not equal_shapes(have[:2], [n, c]):
            return None
        image = self.builder_.emit(relax.op.reshape(turned.args[0], relax.ShapeExpr([n, h, w, c])))
        return relax.op.permute_dims(image, TO_CHANNELS_FIRST)

    def _tokens(self, turned: tvm.ir.Call) -> relax.Expr | None:
        """Return a transposed view of an image as a view of the transposed image."""
        view = self.look_up(turned.args[0])
        if f"relax.{operator_name(view)}" not in VIEWS or not has_channels(view.args[0]):
            return None
        image, shape = view.args[0], dimensions(turned)
        have = dimensions(image) or []
        if shape is None or has_no_elements(turned):
            return None
        if not equal_shapes(have[:2], [shape[0], shape[2]]):
            return None
        return self._viewed(image, shape)

    def _map(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Return an operator of single elements before the transpose of an image."""
        view = self.look_up(call.args[0])
        if f"relax.{operator_name(view)}" not in VIEWS or self._readers[call.args[0]] != 1:
            return None
        if view.args[0] not in self._turned:
            return None
        image = self.look_up(view.args[0]).args[0]
        mapped = self.builder_.emit(tvm.ir.Call(call.op, [image, *call.args[1:]], call.attrs))
        return self._viewed(mapped, dimensions(call) or [])

    def _viewed(self, image: relax.Expr, shape: list[tvm.ir.Expr]) -> relax.Expr:
        """Return an image (N, C, H, W) as tokens."""
        turned = self.builder_.emit(relax.op.permute_dims(image, TO_CHANNELS_LAST))
        self._turned.add(turned)
        return relax.op.reshape(turned, relax.ShapeExpr(shape))
