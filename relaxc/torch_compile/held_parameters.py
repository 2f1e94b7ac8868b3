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
    """The inputs of a compiled function that stay from call to call.

    Attributes:
        inputs: A value for each input; None where it changes from call to call.
        copied: Inputs that are copies: they are made anew in each call.
        taken: Addresses of the memory that `inputs` share with others.
    """

    inputs: list[Any]
    copied: tuple[tuple[int, Read], ...]
    taken: frozenset[int]

    def filled(self, given: list[Any]) -> list[Any]:
        """Return the inputs with those that are copies, made of the graph's arguments."""
        inputs = self.inputs.copy()
        for slot, read in self.copied:
            inputs[slot] = read(given)
        return inputs


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
        # The addresses are of memory that the inputs keep from being given to other tensors.
        self._held: tuple[tuple[int, ...], Held] = (), Held([None] * count, (), frozenset())

    def held(self, given: list[Any]) -> Held:
        """Return what is held: another one where the memory of a parameter is another.

        Args:
            given: The graph's arguments.
        """
        addresses = tuple(map(_ADDRESS, self._pick(given)))
        known, held = self._held
        if addresses != known:
            held = self._hold(given, frozenset(addresses))
            self._held = addresses, held
        return held

    def _hold(self, given: list[Any], addresses: frozenset[int]) -> Held:
        inputs: list[Any] = [None] * self._count
        copied = []
        for slot, (place, read) in self._readers.items():
            tensor = read(given)
            if tensor.data_ptr() != given[place].data_ptr() or not tensor.numel():
                copied.append((slot, read))
            else:
                inputs[slot] = _converted(tensor.detach())
        return Held(inputs, tuple(copied), addresses)


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
