"""Rounding to 8 bits with a scale taken from the data at run time."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.gate_activation import limit


def round_to_codes(emitter: Any, x: relax.Expr) -> relax.Var:
    """Return x rounded to 256 levels between its extremes and 0, as floats.

    The levels are those of the ONNX operator DynamicQuantizeLinear: the result is what
    DequantizeLinear makes of its codes.

    Args:
        emitter: Has `emit` and `te`, as a converter's operator does.
        x: A float tensor; its shape may be symbolic.
    """
    low, high = emitter.emit(R.min(x)), emitter.emit(R.max(x))

    def rounded(x: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        dtype = str(x.dtype)
        zero = tirx.const(0.0, dtype)
        bottom = te.compute((), lambda: tirx.min(low(), zero), name="bottom")
        top = te.compute((), lambda: tirx.max(high(), zero), name="top")

        def step() -> Any:
            spread = top() - bottom()
            one = tirx.const(1.0, dtype)
            return tirx.Select(spread > zero, spread / tirx.const(255.0, dtype), one)

        scale = te.compute((), step, name="scale")
        offset = te.compute(
            (), lambda: tirx.nearbyint(limit(zero - bottom() / scale(), 0.0, 255.0)), name="offset"
        )

        def level(*place: Any) -> Any:
            code = limit(tirx.nearbyint(x(*place) / scale()) + offset(), 0.0, 255.0)
            return (code - offset()) * scale()

        return te.compute(x.shape, level, name="rounded")

    return emitter.te(rounded, x, low, high, name="round_to_codes")
