"""Parameters as constants: compiled at the first call, and anew when one of them has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from relaxc.torch_compile.call_plan import CallPlan

Build = Callable[[Mapping[int, torch.Tensor]], CallPlan]

# After so many versions parameters are taken as arguments: they are being trained.
MOST_VERSIONS = 3


class FrozenGraph:
    """A compiled graph that holds its parameters, and checks at each call that they are the same.

    torch counts the changes of a tensor (`_version`) but for those made through `.data`.
    """

    def __init__(self, build: Build, places: Sequence[int]) -> None:
        """Compile by `build`, which takes constants by place; `places` are the parameters'."""
        self._boxed_call = True
        self._build, self._places = build, tuple(places)
        self._plan: CallPlan | None = None
        self._state: tuple[tuple[int, int], ...] = ()
        self._versions = 0

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run the graph with the parameters as they are now."""
        if self._versions <= MOST_VERSIONS:
            state = tuple(
                (arguments[place].data_ptr(), arguments[place]._version) for place in self._places
            )
            if state != self._state:
                self._versions += 1
                frozen = self._versions <= MOST_VERSIONS
                constants = {p: arguments[p].detach() for p in self._places} if frozen else {}
                with torch.no_grad():
                    self._plan = self._build(constants)
                self._state = state
        assert self._plan is not None
        return self._plan(arguments)


def parameter_places(graph: torch.fx.GraphModule) -> list[int]:
    """Return which of a captured graph's arguments are parameters or buffers of a module."""
    places = []
    for place, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        # How Dynamo marks what a module holds, parameters and buffers, apart from a call's inputs.
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None:
            places.append(place)
    return places
