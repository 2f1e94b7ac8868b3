"""Find attention written in single operators.

    softmax(scale * Q K^T + mask) V

Exporters write the scale before or after the first product, or its root on both operands; they add
masks of any shape that broadcasts, or choose between a score and a lowest number; they guard the
result of softmax against rows that see no key. In half precision they round scores and weights,
which one kernel need not. Vaswani et al.: Attention Is All You Need, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import tvm
from tvm import relax

from relax_passes.analysis.attention_operands import (
    NotAttentionError,
    Operand,
    Sizes,
    few_heads,
    operand,
    scaled_value,
    score_sizes,
)
from relax_passes.analysis.definitions import (
    Definitions,
    dimensions,
    equal_shapes,
    operator_name,
    scalar,
)
from relax_passes.lowering.rule import dtype_of, is_float32

# Exporters write at most this many operators between the softmax and each product.
_DEPTH = 8
_HALVES = ("float16", "bfloat16")
# No finite score reaches this, so that adding a smaller number hides a key as -inf does.
HIDDEN = -1e30


@dataclass(frozen=True)
class Mask:
    """What is added to the scores where they have the shape `stage`.

    It is `amount * value`; or, where `value` is a condition, `amount` where that is `hides`.
    """

    value: relax.Expr
    amount: float
    stage: Sizes
    hides: bool | None = None


@dataclass(frozen=True)
class Attention:
    """A match: softmax(scale * Q K^T + masks) V, scores of the sizes (batch, heads, rows, keys)."""

    q: Operand
    k: Operand
    v: Operand
    sizes: Sizes
    scale: float
    masks: list[Mask]


@dataclass
class _Walk:
    """What the walk from the second product to the first has met."""

    reads: dict[relax.Var, int] = field(default_factory=dict)  # by the pattern itself
    stages: list[Sizes] = field(default_factory=list)  # shapes of the scores, last to first
    masks: list[Mask] = field(default_factory=list)
    hidden: list[relax.Expr] = field(default_factory=list)  # conditions under which keys are hidden
    factor: float = 1.0
    guard: tvm.ir.Call | None = None
    roundings: int = 0  # to half precision, and back

    def read(self, value: relax.Expr) -> None:
        """Count one read of `value`."""
        if isinstance(value, relax.Var):
            self.reads[value] = self.reads.get(value, 0) + 1


class AttentionPattern:
    """Matches attention in one function; each product takes a bounded number of steps.

    Args:
        definitions: Of the function.
        half: Whether operands may be in half precision, and what products sum be rounded to it.
    """

    def __init__(self, definitions: Definitions, half: bool = False) -> None:
        self._defs = definitions
        self._half = half

    def match(self, call: tvm.ir.Call) -> Attention | None:
        """Return the attention that the product `call` ends, None if it ends none.

        Raises:
            NotAttentionError: If its left operand comes from a softmax and still it is none.
        """
        walk = _Walk()
        softmax = self._softmax(call.args[0], walk)
        if softmax is None:
            return None
        if int(softmax.attrs.axis) % softmax.ty.ndim != softmax.ty.ndim - 1:
            raise NotAttentionError("its softmax is not over the last axis")
        product = self._product(softmax.args[0], walk)
        if product is None:
            raise NotAttentionError("its scores are no scaled and masked product")
        for value, count in walk.reads.items():
            if self._defs.readers[value] != count:
                raise NotAttentionError(f"{value.name}, on the way, has another reader")
        if not self._is_in_float32(product, softmax, call, walk):
            raise NotAttentionError("it is not computed in float32")
        self._check_guard(walk)
        return self._attention(product, call, walk)

    def _attention(self, product: tvm.ir.Call, call: tvm.ir.Call, walk: _Walk) -> Attention:
        rank = product.ty.ndim
        if rank not in (3, 4) or call.ty.ndim != rank:
            raise NotAttentionError(f"its products have rank {rank}, not 3 or 4")
        lead = range(rank - 2)
        left, q = operand(self._defs, product.args[0], (*lead, rank - 2, rank - 1))
        right, k = operand(self._defs, product.args[1], (*lead, rank - 1, rank - 2))
        v = operand(self._defs, call.args[1], (*lead, rank - 2, rank - 1), scaled=False)[1]
        scale = walk.factor * left * right
        if not math.isfinite(scale):
            raise NotAttentionError("its scale is not finite")
        _check_products(q, k, v, walk.stages[-1])
        sizes = score_sizes(self._defs, walk.stages, q)
        k, v = few_heads(self._defs, k, v)
        return Attention(q, k, v, sizes, scale, walk.masks)

    def _is_in_float32(
        self, product: tvm.ir.Call, softmax: tvm.ir.Call, call: tvm.ir.Call, walk: _Walk
    ) -> bool:
        """Tell whether products are summed in float32, and rounded for half operands only."""
        if not walk.roundings:
            return is_float32(product, softmax, call)
        halves = {dtype_of(arg) for arg in (*product.args, *call.args)}
        return is_float32(product, call) and len(halves) == 1 and halves <= set(_HALVES)

    def _is_rounding(self, call: tvm.ir.Call) -> bool:
        """Tell whether a call converts between half precision and float32."""
        kinds = {dtype_of(call), dtype_of(call.args[0])}
        return self._half and kinds <= {"float32", *_HALVES}

    # From the weights to the softmax --------------------------------------------------------

    def _softmax(self, weights: relax.Expr, walk: _Walk) -> tvm.ir.Call | None:
        """Walk from the left operand of the second product to the softmax, through guards."""
        for _ in range(_DEPTH):
            call = self._defs.call(weights, "nn.softmax", "reshape", "where", "astype")
            if call is None:
                return None
            walk.read(weights)
            name = operator_name(call)
            if name == "nn.softmax":
                return call
            if name == "astype":
                if not self._is_rounding(call):
                    return None
                walk.roundings += 1
            if name in ("reshape", "astype"):
                weights = call.args[0]
                continue
            kept = None if walk.guard is not None else self._guarded(call, walk)
            if kept is None:
                return None
            walk.guard, weights = call, kept
        return None

    def _guarded(self, guard: tvm.ir.Call, walk: _Walk) -> relax.Expr | None:
        """Return what `where` keeps, if it puts zeros in place of the rest."""
        condition, yes, no = guard.args
        if scalar(no) == 0.0:
            return yes
        if scalar(yes) != 0.0:
            return None
        is_nan = self._defs.call(condition, "isnan")
        if is_nan is not None and self._defs.same(is_nan.args[0], no):
            walk.read(is_nan.args[0])
        return no

    def _check_guard(self, walk: _Walk) -> None:
        """Check that what is cleared are hidden keys or rows without a key.

        Attention gives such rows zeros. A NaN that is in Q or K is not cleared by attention.
        """
        if walk.guard is None:
            return
        condition, yes, no = walk.guard.args
        if scalar(no) == 0.0:
            mask = self._some_key_seen(condition)
            if mask is not None and any(self._defs.same(m.value, mask) for m in walk.masks):
                return
        else:
            is_nan = self._defs.call(condition, "isnan")
            if is_nan is not None and self._defs.same(is_nan.args[0], no):
                return
            if any(self._defs.same(condition, other) for other in walk.hidden):
                return
        raise NotAttentionError("what clears its weights is not its mask")

    def _some_key_seen(self, condition: relax.Expr) -> relax.Expr | None:
        """Return the mask m of `max(int(m > -inf)) > 0` over the keys."""
        value, call = condition, None
        for name in ("greater", "max", "astype", "greater"):
            call = self._defs.call(value, name)
            if call is None:
                return None
            value = call.args[0]
        assert call is not None
        return value if scalar(call.args[1]) == -math.inf else None

    # From the softmax to the first product --------------------------------------------------

    def _product(self, scores: relax.Expr, walk: _Walk) -> tvm.ir.Call | None:
        """Walk from the argument of softmax to the product of Q and K, noting what happens."""
        for _ in range(_DEPTH):
            call = self._step(scores)
            dims = dimensions(scores)
            if call is None or dims is None:
                return None
            walk.read(scores)
            walk.stages.append(dims)
            name = operator_name(call)
            following: relax.Expr | None
            if name == "matmul":
                return call
            if name == "astype":
                if not self._is_rounding(call):
                    return None
                walk.roundings += 1
            if name in ("reshape", "astype"):
                following = call.args[0]
            elif name == "add":
                following = self._added(call, walk)
            elif name == "where":
                following = self._chosen(call, walk)
            else:
                following, factor = scaled_value(call)
                walk.factor *= factor
            if following is None:
                return None
            if name in ("add", "where") and not equal_shapes(dimensions(following), dims):
                raise NotAttentionError("a mask is larger than its scores")
            scores = following
        return None

    def _step(self, value: relax.Expr) -> tvm.ir.Call | None:
        steps = ("matmul", "reshape", "add", "where", "multiply", "divide", "astype")
        return self._defs.call(value, *steps)

    def _leads_to_product(self, value: relax.Expr, depth: int) -> bool:
        call = self._step(value)
        if call is None or not depth:
            return False
        return operator_name(call) == "matmul" or any(
            self._leads_to_product(arg, depth - 1)
            for arg in call.args
            if isinstance(arg, relax.Var)
        )

    def _added(self, call: tvm.ir.Call, walk: _Walk) -> relax.Expr | None:
        """Take the operand of `add` that comes from a product as the scores, the other as mask."""
        for value, mask in (call.args, list(call.args)[::-1]):
            if isinstance(value, relax.Var) and self._leads_to_product(value, _DEPTH):
                walk.masks.append(Mask(self._defs.root(mask), walk.factor, walk.stages[-1]))
                return value
        return None

    def _chosen(self, call: tvm.ir.Call, walk: _Walk) -> relax.Expr | None:
        """Take `where` of the scores and a lowest number as a mask."""
        condition, yes, no = call.args
        hides = scalar(yes) is not None
        lowest, kept = (scalar(yes), no) if hides else (scalar(no), yes)
        if lowest is None or lowest * walk.factor > HIDDEN:
            return None
        walk.hidden.append(condition)
        marked = self._defs.call(condition, "equal")
        if marked is not None and self._defs.same(marked.args[0], kept):
            # What is -inf gets a finite floor, and is cleared after the softmax.
            if not hides or walk.guard is None or scalar(marked.args[1]) != -math.inf:
                return None
            walk.read(marked.args[0])
            return kept
        amount = lowest * walk.factor if walk.guard is None else -math.inf
        walk.masks.append(Mask(self._defs.root(condition), amount, walk.stages[-1], hides))
        return kept


def _check_products(q: Operand, k: Operand, v: Operand, scores: Sizes) -> None:
    """Check that no operand is broadcast over a batch; K and V may share one head."""
    kept = [scores[:-1], [*scores[:-2], scores[-1]], [*scores[:-2], scores[-1]]]
    for operand_, wanted in zip((q, k, v), kept, strict=True):
        own = operand_.sizes()[:-1]
        if operand_ is not q and len(own) == 3:
            own, wanted = [own[0], own[2]], [wanted[0], wanted[2]]
        if not equal_shapes(own, wanted):
            raise NotAttentionError("its operands differ in batch, heads or length")
