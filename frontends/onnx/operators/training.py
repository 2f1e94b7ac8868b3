"""Optimizer steps of ai.onnx.preview.training: one new value of each tensor."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op as R

from frontends.onnx.op import Op
from frontends.onnx.registry import converter, refuse

TRAINING = "ai.onnx.preview.training"


class _Step:
    """Arithmetic on the tensors of one optimizer step; numbers take their partner's dtype."""

    def __init__(self, op: Op, groups: int) -> None:
        self._op = op
        self.dtype = op.dtype(2)
        self.tensors = (len(op.inputs) - 2) // groups
        self.rate = self.cast(op.x(0))
        self.count = self.cast(op.x(1))
        self.is_first = op.emit(R.less_equal(op.x(1), op.const(0, op.dtype(1))))

    def cast(self, x: relax.Expr) -> relax.Expr:
        return self._op.emit(R.astype(x, self.dtype))

    def input(self, group: int, number: int) -> relax.Expr:
        """Return input tensor `number` of a group such as the gradients."""
        return self._op.x(2 + group * self.tensors + number)

    def number(self, name: str, default: float) -> relax.Expr:
        return self.const(float(self._op.attr(name, default)))

    def const(self, value: float) -> relax.Expr:
        return self._op.const(value, self.dtype)

    def add(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return self._op.emit(R.add(a, b))

    def sub(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return self._op.emit(R.subtract(a, b))

    def mul(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return self._op.emit(R.multiply(a, b))

    def div(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return self._op.emit(R.divide(a, b))

    def sqrt(self, a: relax.Expr) -> relax.Expr:
        return self._op.emit(R.sqrt(a))

    def power(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return self._op.emit(R.power(a, b))

    def if_first(self, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        """Return `a` at the first update (T = 0), else `b`."""
        return self._op.emit(R.where(self.is_first, a, b))

    def regularized(self, number: int) -> relax.Expr:
        """Return the gradient plus that of the squared norm."""
        decay = self.mul(self.number("norm_coefficient", 0.0), self.input(0, number))
        return self.add(decay, self.input(1, number))


@converter("Adagrad", domain=TRAINING)
def adagrad(op: Op) -> list[relax.Expr]:
    """Scale the gradient by the root of its accumulated square (Duchi et al., JMLR 2011)."""
    s = _Step(op, 3)
    slowed = s.add(s.const(1.0), s.mul(s.count, s.number("decay_factor", 0.0)))
    rate = s.div(s.rate, slowed)
    values, squares = [], []
    for k in range(s.tensors):
        gradient = s.regularized(k)
        square = s.add(s.input(2, k), s.mul(gradient, gradient))
        scale = s.add(s.sqrt(square), s.number("epsilon", 1e-6))
        values.append(s.sub(s.input(0, k), s.div(s.mul(rate, gradient), scale)))
        squares.append(square)
    return [*values, *squares]


@converter("Adam", domain=TRAINING)
def adam(op: Op) -> list[relax.Expr]:
    """Scale running means of the gradient and its square (Kingma and Ba, ICLR 2015)."""
    s = _Step(op, 4)
    one, alpha, beta = s.const(1.0), s.number("alpha", 0.9), s.number("beta", 0.999)
    root = s.sqrt(s.sub(one, s.power(beta, s.count)))
    corrected = s.div(s.mul(s.rate, root), s.sub(one, s.power(alpha, s.count)))
    rate = s.if_first(s.rate, corrected)
    kept = s.sub(one, s.number("norm_coefficient_post", 0.0))
    values, means, squares = [], [], []
    for k in range(s.tensors):
        gradient = s.regularized(k)
        mean = s.add(s.mul(alpha, s.input(2, k)), s.mul(s.sub(one, alpha), gradient))
        new_square = s.mul(s.sub(one, beta), s.mul(gradient, gradient))
        square = s.add(s.mul(beta, s.input(3, k)), new_square)
        scale = s.add(s.sqrt(square), s.number("epsilon", 1e-6))
        moved = s.sub(s.input(0, k), s.div(s.mul(rate, mean), scale))
        values.append(s.mul(kept, moved))
        means.append(mean)
        squares.append(square)
    return [*values, *means, *squares]


@converter("Momentum", domain=TRAINING)
def momentum(op: Op) -> list[relax.Expr]:
    """Follow a running sum of gradients, with Nesterov's correction on request."""
    s = _Step(op, 3)
    nesterov = op.attr("mode") == "nesterov"
    alpha = s.number("alpha", 0.0)
    beta = s.if_first(s.const(1.0), s.number("beta", 0.0))
    values, velocities = [], []
    for k in range(s.tensors):
        gradient = s.regularized(k)
        velocity = s.add(s.mul(alpha, s.input(2, k)), s.mul(beta, gradient))
        step = s.add(gradient, s.mul(alpha, velocity)) if nesterov else velocity
        values.append(s.sub(s.input(0, k), s.mul(s.rate, step)))
        velocities.append(velocity)
    return [*values, *velocities]


refuse("Gradient", reason="differentiating a graph is no inference", domain=TRAINING)
