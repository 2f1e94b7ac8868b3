"""The activation functions of recurrent cells.

Source: ONNX operators RNN, GRU and LSTM, attribute `activations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class Activation:
    """An activation function by its ONNX name, with its parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Any) -> Any:
        """Return f(x) as expression; NaN propagates."""
        dtype = str(x.ty)
        return _FUNCTIONS[self.name](x, tirx.const(self.alpha, dtype), tirx.const(self.beta, dtype))


# Parameters where the model gives none; a function without an entry has no parameters.
DEFAULTS: dict[str, tuple[float, ...]] = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01,),
    "ThresholdedRelu": (1.0,),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
}


def limit(x: Any, low: float, high: float) -> Any:
    """Return x limited to [low, high]; NaN stays NaN."""
    dtype = str(x.ty)
    bottom, top = tirx.const(low, dtype), tirx.const(high, dtype)
    return tirx.Select(x < bottom, bottom, tirx.Select(x > top, top, x))


def _zero(x: Any) -> Any:
    return tirx.const(0.0, str(x.ty))


def _one(x: Any) -> Any:
    return tirx.const(1.0, str(x.ty))


def _magnitude(x: Any) -> Any:
    return tirx.Select(x < _zero(x), _zero(x) - x, x)


def _softplus(x: Any, alpha: Any, beta: Any) -> Any:
    """Return log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), which does not overflow."""
    positive = tirx.Select(x < _zero(x), _zero(x), x)
    return positive + tirx.log(_one(x) + tirx.exp(_zero(x) - _magnitude(x)))


_FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Relu": lambda x, a, b: tirx.Select(x < _zero(x), _zero(x), x),
    "Tanh": lambda x, a, b: tirx.tanh(x),
    "Sigmoid": lambda x, a, b: tirx.sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: tirx.Select(x < _zero(x), a * x, x),
    "ThresholdedRelu": lambda x, a, b: tirx.Select(x < a, _zero(x), x),
    "ScaledTanh": lambda x, a, b: a * tirx.tanh(b * x),
    "HardSigmoid": lambda x, a, b: limit(a * x + b, 0.0, 1.0),
    "Elu": lambda x, a, b: tirx.Select(x < _zero(x), a * (tirx.exp(x) - _one(x)), x),
    "Softsign": lambda x, a, b: x / (_one(x) + _magnitude(x)),
    "Softplus": _softplus,
}
NAMES = tuple(_FUNCTIONS)
