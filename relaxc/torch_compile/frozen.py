"""Parameters as constants: compiled at the first call, and anew when one of them has changed."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from relaxc.element_sample import ElementSample
from relaxc.torch_compile.call_plan import CallPlan

Build = Callable[[Mapping[int, torch.Tensor]], CallPlan]

# After so many versions parameters are taken as arguments: they are being trained.
MOST_VERSIONS = 3

_ADDRESS, _VERSION = torch.Tensor.data_ptr, operator.attrgetter("_version")


class FrozenGraph:
    """A compiled graph that holds its parameters, and checks at each call that they are the same.

    torch counts the changes of a tensor (`_version`) but for those made through `.data`, which a
    sample of the elements tells, and those of tensors made in inference mode, which stay arguments.
    """

    def __init__(self, build: Build, places: Sequence[int]) -> None:
        """Compile by `build`, which takes constants by place; `places` are the parameters'."""
        self._boxed_call = True
        self._build, self._places = build, tuple(places)
        self._compiled: tuple[CallPlan | None, tuple[Any, ...], ElementSample] = (
            None,
            (),
            ElementSample(()),
        )
        self._constants: dict[int, torch.Tensor] = {}
        self._versions = 0
        self._lock = threading.Lock()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run the graph with the parameters as they are now."""
        plan, state, sample = self._compiled
        if plan is None or (
            self._versions <= MOST_VERSIONS
            and (state != self._now(arguments) or not sample.holds())
        ):
            with self._lock:
                plan = self._compile(arguments)
        return plan(arguments)

    def _now(self, arguments: list[Any]) -> tuple[Any, ...]:
        parameters = [arguments[place] for place in self._places]
        return (*map(_ADDRESS, parameters), *map(_VERSION, parameters))

    def _compile(self, arguments: list[Any]) -> CallPlan:
        plan, state, sample = self._compiled
        if plan is None:
            self._places = tuple(p for p in self._places if not arguments[p].is_inference())
        now = self._now(arguments)
        if plan is not None and state == now and sample.holds():
            return plan  # another thread was faster
        self._versions += 1
        # They are kept: memory that is freed could be given to another parameter.
        self._constants = (
            {place: arguments[place].detach() for place in self._places}
            if self._versions <= MOST_VERSIONS
            else {}
        )
        # Taken before the parameters are read: a change in between is seen by the next call.
        sample = ElementSample(list(self._constants.values()))
        with torch.no_grad():
            plan = self._build(self._constants)
        self._compiled = plan, now, sample
        return plan


def parameter_places(graph: torch.fx.GraphModule) -> list[int]:
    """Return which of a captured graph's arguments are parameters or buffers of a module."""
    places = []
    for place, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        # How Dynamo marks what a module holds, parameters and buffers, apart from a call's inputs.
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None:
            places.append(place)
    return places
