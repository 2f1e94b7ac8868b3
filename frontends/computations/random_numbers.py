"""Random numbers from a counter, so that every element is independent of threads and order.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): element number i of a draw with key `seed` is a function of (seed, i) alone. A key is a
number, or a tensor int64 (1,) that holds it at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    index,
    kernel,
    parallel,
    product,
    serial,
    when,
)

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Key: TypeAlias = "int | te.Tensor"


def inputs_of(seed: Key) -> list[te.Tensor]:
    """Return the tensors that a key is read from."""
    return [] if isinstance(seed, int) else [seed]


def key_of(ins: list[Any], seed: Key) -> Any:
    """Return the key as a number or an expression; a tensor is the last of a kernel's inputs."""
    return seed if isinstance(seed, int) else ins[-1][0]


def philox(counter: Any, seed: Any, attempt: Any = 0) -> list[Any]:
    """State the rounds for one counter value; return its four random 32-bit words (as uint64).

    An element that needs several draws numbers them by `attempt`, below 2 ** 32.
    """

    def word(value: int) -> Any:
        return tirx.const(value, "uint64")

    low = word(0xFFFFFFFF)
    number = as_dtype(counter, "uint64")
    again = as_dtype(attempt, "uint64")
    state = [
        Scalar(value, "uint64") for value in (number & low, number >> word(32), again, word(0))
    ]
    if isinstance(seed, int):
        halves = [word((seed >> shift) & 0xFFFFFFFF) for shift in (0, 32)]
    else:
        whole = as_dtype(seed, "uint64")
        halves = [whole & low, whole >> word(32)]
    key = [Scalar(half, "uint64") for half in halves]
    with serial(_ROUNDS):
        first = Scalar(state[0]() * word(_MULTIPLIERS[0]), "uint64")
        second = Scalar(state[2]() * word(_MULTIPLIERS[1]), "uint64")
        state[0].set((second() >> word(32)) ^ state[1]() ^ key[0]())
        state[1].set(second() & low)
        state[2].set((first() >> word(32)) ^ state[3]() ^ key[1]())
        state[3].set(first() & low)
        for part, step in zip(key, _WEYL, strict=True):
            part.set((part() + word(step)) & low)
    return [part() for part in state]


def unit(high: Any, low: Any) -> Any:
    """Return a float64 in [0, 1) from 53 of 64 random bits."""
    bits = ((high << tirx.const(32, "uint64")) | low) >> tirx.const(11, "uint64")
    return as_dtype(bits, "float64") * tirx.const(2.0**-53, "float64")


def inside_unit(high: Any, low: Any) -> Any:
    """Return a float64 in (0, 1) from 52 of 64 random bits: for logarithms."""
    bits = ((high << tirx.const(32, "uint64")) | low) >> tirx.const(12, "uint64")
    return (as_dtype(bits, "float64") + 0.5) * tirx.const(2.0**-52, "float64")


def standard_normal(words: list[Any]) -> Any:
    """Return a normally distributed float64 (Box and Muller's transform)."""
    radius = tirx.sqrt(-2.0 * tirx.log(1.0 - unit(words[0], words[1])))
    return radius * tirx.cos(2.0 * math.pi * unit(words[2], words[3]))


def draw(dims: Sequence[Any], dtype: str, seed: Key, value: Callable[[list[Any]], Any]) -> Any:
    """Return a tensor of shape `dims`; `value` makes an element of its four random words."""

    def body(ins: list[Any], outs: list[Any]) -> None:
        key = key_of(ins, seed)
        with parallel(product(dims)) as place:
            outs[0][place] = as_dtype(value(philox(place, key)), dtype)

    return kernel(inputs_of(seed), [(dims, dtype)], body, "random")[0]


def uniform(dims: Sequence[Any], dtype: str, low: float, high: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims`, uniformly distributed over [low, high).

    Rounding to a narrow dtype may give `high` itself.
    """

    def value(words: list[Any]) -> Any:
        return low + (high - low) * unit(words[0], words[1])

    return draw(dims, dtype, seed, value)


def normal(dims: Sequence[Any], dtype: str, mean: float, scale: float, seed: Key) -> te.Tensor:
    """Return a tensor of shape `dims`, normally distributed."""
    return draw(dims, dtype, seed, lambda words: mean + scale * standard_normal(words))


def bernoulli(x: te.Tensor, dtype: str, seed: Key) -> te.Tensor:
    """Return 1 with the probability that `x` gives for each element, else 0."""

    def body(ins: list[Any], outs: list[Any]) -> None:
        key = key_of(ins, seed)
        with parallel(product(x.shape)) as place:
            words = philox(place, key)
            drawn = unit(words[0], words[1]) < as_dtype(ins[0][place], "float64")
            outs[0][place] = as_dtype(drawn, dtype)

    return kernel([x, *inputs_of(seed)], [(x.shape, dtype)], body, "bernoulli")[0]


def multinomial(logits: te.Tensor, number: int, dtype: str, seed: Key) -> te.Tensor:
    """Return classes drawn with replacement, with probabilities softmax(logits).

    Args:
        logits: (rows, classes).
        number: Draws a row.
        dtype: Integer dtype of the result, (rows, number).
        seed: The key.
    """
    rows, classes = logits.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        key = key_of(ins, seed)
        with parallel(rows) as row:

            def wide(c: Any) -> Any:
                return as_dtype(ins[0][row, c], "float64")

            top, total = Scalar(-math.inf, "float64"), Scalar(0.0, "float64")
            with serial(classes) as c:
                top.set(tirx.max(top(), wide(c)))
            with serial(classes) as c:
                total.set(total() + tirx.exp(wide(c) - top()))
            with serial(number) as turn:
                words = philox(row * number + turn, key)
                rest = Scalar(unit(words[0], words[1]) * total(), "float64")
                chosen = Scalar(index(-1))
                likely = Scalar(index(0))  # rounding may leave a rest beyond the last class
                with serial(classes) as c:
                    weight = Scalar(tirx.exp(wide(c) - top()), "float64")
                    with when(weight() > 0.0):
                        likely.set(c)
                    with when(tirx.all(chosen() < 0, rest() < weight())):
                        chosen.set(c)
                    rest.set(rest() - weight())
                outs[0][row, turn] = as_dtype(tirx.Select(chosen() < 0, likely(), chosen()), dtype)

    return kernel([logits, *inputs_of(seed)], [((rows, number), dtype)], body, "multinomial")[0]
