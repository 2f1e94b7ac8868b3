"""Inputs that a compiled model holds itself between calls, such as the cache of a decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from frontends.imported_model import ImportedModel, TensorSpec
from relaxc.bind_inputs import check_input, from_tensor, kind_of, to_tensor
from relaxc.errors import InvalidInput


def state_pairs(
    imported: ImportedModel, states: Mapping[str, str] | None, other: str
) -> tuple[tuple[int, int], ...]:
    """Return the states as pairs of numbers, an input and the output that is its next value.

    Raises:
        InvalidInput: If a name is unknown or named twice, the two are not of one type and static
            shape, or the model has something that goes with no states: `other`, "" for nothing.
    """
    if states is None:
        return ()
    if not isinstance(states, Mapping):
        raise InvalidInput(f"states must be a dict of names, got {type(states).__name__}")
    if states and other:
        raise InvalidInput(f"states: a model with {other} holds none")
    inputs, outputs = (
        {spec.name: (number, spec) for number, spec in enumerate(specs)}
        for specs in (imported.inputs, imported.outputs)
    )
    if len(set(states.values())) < len(states):
        raise InvalidInput("states: an output is the next value of one state only")
    pairs = []
    for name, result in states.items():
        for wanted, known, kind in ((name, inputs, "input"), (result, outputs, "output")):
            if wanted not in known:
                listed = ", ".join(known) or "none"
                raise InvalidInput(
                    f"states: no {kind} is called {wanted!r}: {listed}", tensor=str(wanted)
                )
        (given, spec), (number, next_spec) = inputs[name], outputs[result]
        if (spec.shape, spec.dtype) != (next_spec.shape, next_spec.dtype):
            raise InvalidInput(
                f"states: {name!r} is {spec.dtype}{list(spec.shape)}, its next value {result!r} is "
                f"{next_spec.dtype}{list(next_spec.shape)}",
                tensor=name,
            )
        if any(isinstance(dim, str) for dim in spec.shape):
            raise InvalidInput(
                f"states: {name!r} has the symbolic shape {list(spec.shape)}", tensor=name
            )
        pairs.append((given, number))
    return tuple(pairs)


class HeldStates:
    """The states of one thread: a tensor of the model's device for each, zeros at first."""

    def __init__(
        self, specs: Sequence[TensorSpec], pairs: Sequence[tuple[int, int]], device: Any
    ) -> None:
        """Hold zeros.

        Args:
            specs: The states.
            pairs: Of each, its number among all inputs, and that of its next value among results.
            device: Where the tensors are.
        """
        self._specs, self._device = {spec.name: spec for spec in specs}, device
        self._pairs = tuple(pairs)
        self._tensors: list[Any] = [None] * len(specs)
        self.write({})

    def among(self, inputs: Sequence[Any]) -> list[Any]:
        """Return all inputs of a call: those given, with the states at their places."""
        states = {
            given: tensor for (given, _), tensor in zip(self._pairs, self._tensors, strict=True)
        }
        rest = iter(inputs)
        count = len(inputs) + len(states)
        return [states[number] if number in states else next(rest) for number in range(count)]

    def take_next(self, results: Sequence[Any]) -> list[Any]:
        """Keep the states' next values, which may be the memory they had; return the others."""
        self._tensors = [results[number] for _, number in self._pairs]
        kept = {number for _, number in self._pairs}
        return [result for number, result in enumerate(results) if number not in kept]

    def read(self, name: str) -> np.ndarray:
        """Return a copy of a state.

        Raises:
            InvalidInput: If no state has that name.
        """
        return np.array(from_tensor(self._tensors[self._number(name)], "numpy"))

    def write(self, values: Mapping[str, Any]) -> None:
        """Set states by name, copied; without any, all to zeros.

        Raises:
            InvalidInput: If no state has a name, or a value does not fit; nothing is changed then.
        """
        if not values:
            values = {name: np.zeros(s.shape, s.dtype) for name, s in self._specs.items()}
        fresh = {}
        for name, value in values.items():
            number = self._number(name)
            check_input(self._specs[name], value, {})
            kind = kind_of(value)
            tensor = tvm.runtime.empty(
                tuple(value.shape), self._specs[name].dtype, device=self._device
            )
            tensor.copyfrom(to_tensor(value, kind, self._device))
            fresh[number] = tensor
        for number, tensor in fresh.items():
            self._tensors[number] = tensor

    def _number(self, name: str) -> int:
        if name not in self._specs:
            known = ", ".join(self._specs) or "none"
            raise InvalidInput(f"no state is called {name!r}: {known}", tensor=name)
        return list(self._specs).index(name)
