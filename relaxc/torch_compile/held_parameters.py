"""Parameters as the compiled function takes them, converted once as long as they stay in place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm

Read = Callable[[list[Any]], torch.Tensor]

_ADDRESS = torch.Tensor.data_ptr


@dataclass(frozen=True)
class Held:
    """What was converted; another one where the memory of a parameter is another.

    Attributes:
        addresses: Of each parameter's memory, which `inputs` keep from being given to another one.
        inputs: A value for each input of the compiled function; None where it is no parameter.
        taken: `addresses` as a set.
        copied: Inputs that are copies: they are made anew in each call.
    """

    addresses: tuple[int, ...]
    inputs: list[Any]
    taken: frozenset[int]
    copied: tuple[tuple[int, Read], ...]


class HeldParameters:
    """The inputs that are parameters. A call compares addresses, which costs 60 ns for each.

    The elements may change: what is held is the place of the memory. Safe to use from several
    threads at once: what one of them holds is replaced as a whole.
    """

    def __init__(self, count: int, readers: Mapping[int, tuple[int, Read]]) -> None:
        """Hold some of `count` inputs.

        Args:
            count: How many inputs the compiled function has.
            readers: For each input that is a parameter, the place of the graph's argument, and what
                makes the input of the arguments.
        """
        self._count, self._readers = count, readers
        places = [place for place, _ in readers.values()]
        self._pick = picker(places)
        self._held = Held((), [None] * count, frozenset(), ())

    def inputs(self, given: list[Any]) -> tuple[list[Any], Held]:
        """Return a list of inputs to fill in, and what they were taken from.

        Args:
            given: The graph's arguments.
        """
        addresses = tuple(map(_ADDRESS, self._pick(given)))
        held = self._held
        if addresses != held.addresses:
            held = self._held = self._hold(given, addresses)
        inputs = held.inputs.copy()
        for slot, read in held.copied:
            inputs[slot] = read(given)
        return inputs, held

    def _hold(self, given: list[Any], addresses: tuple[int, ...]) -> Held:
        inputs: list[Any] = [None] * self._count
        copied = []
        for slot, (place, read) in self._readers.items():
            tensor = read(given)
            if tensor.data_ptr() != given[place].data_ptr() or not tensor.numel():
                copied.append((slot, read))
            else:
                inputs[slot] = _converted(tensor.detach())
        return Held(addresses, inputs, frozenset(addresses), tuple(copied))


def picker(places: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return what takes the elements at some places of a list."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return lambda given: tuple(given[place] for place in places)


def _converted(tensor: torch.Tensor) -> Any:
    try:
        return tvm.runtime.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):  # a dtype that torch's DLPack does not export
        return tensor
