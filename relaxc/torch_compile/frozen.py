"""Parameters as constants: compiled at the first call, and anew when one of them has changed."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from relaxc.element_sample import ElementSample
from relaxc.torch_compile.call_plan import CallPlan

Plan = Callable[[list[Any]], Any]
Build = Callable[[Mapping[int, torch.Tensor]], Plan]

# After so many versions parameters are taken as arguments: they are being trained.
MOST_VERSIONS = 3

_ADDRESS, _VERSION = torch.Tensor.data_ptr, operator.attrgetter("_version")


@dataclass(frozen=True)
class _Version:
    """What was compiled, and of which parameters: replaced as a whole, so that threads agree.

    Attributes:
        plan: Runs the graph; None before the first call.
        state: Addresses and versions of the parameters that are constants of it.
        sample: Some of their elements.
        takes_any: Whether parameters are arguments of it, so that none has to be compared.
    """

    plan: Plan | None = None
    state: tuple[Any, ...] = ()
    sample: ElementSample = field(default_factory=lambda: ElementSample(()))
    takes_any: bool = False


class FrozenGraph:
    """A compiled graph that holds its parameters, and checks at each call that they are the same.

    torch counts the changes of a tensor (`_version`) but for those made through `.data`, which a
    sample of the elements tells, and those of tensors made in inference mode, which stay arguments.
    """

    def __init__(self, build: Build, places: Sequence[int]) -> None:
        """Compile by `build`, which takes constants by place; `places` are the parameters'.

        Where it gives anything but a `CallPlan`, no other version is built: that is eager.
        """
        self._boxed_call = True
        self._build, self._places = build, tuple(places)
        self._compiled = _Version()
        self._versions = 0
        self._lock = threading.Lock()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run the graph with the parameters as they are now."""
        compiled = self._compiled
        plan = compiled.plan
        if plan is None or not (compiled.takes_any or self._is_current(compiled, arguments)):
            with self._lock:
                plan = self._compile(arguments)
        return plan(arguments)

    def _is_current(self, compiled: _Version, arguments: list[Any]) -> bool:
        return compiled.state == self._now(arguments) and compiled.sample.holds()

    def _now(self, arguments: list[Any]) -> tuple[Any, ...]:
        parameters = [arguments[place] for place in self._places]
        return (*map(_ADDRESS, parameters), *map(_VERSION, parameters))

    def _compile(self, arguments: list[Any]) -> Plan:
        compiled = self._compiled
        if compiled.plan is None:
            self._places = tuple(p for p in self._places if not arguments[p].is_inference())
        elif compiled.takes_any or self._is_current(compiled, arguments):
            return compiled.plan  # another thread was faster
        now = self._now(arguments)
        self._versions += 1
        is_last = self._versions > MOST_VERSIONS
        constants = {} if is_last else {p: arguments[p].detach() for p in self._places}
        # Taken before the parameters are read: a change in between is seen by the next call. It
        # keeps them: memory that is freed could be given to another parameter.
        sample = ElementSample(list(constants.values()))
        with torch.no_grad():
            plan = self._build(constants)
        self._compiled = _Version(plan, now, sample, is_last or not isinstance(plan, CallPlan))
        return plan


def parameter_places(graph: torch.fx.GraphModule) -> list[int]:
    """Return which of a captured graph's arguments are parameters or buffers of a module."""
    places = []
    for place, node in enumerate(n for n in graph.graph.nodes if n.op == "placeholder"):
        # How Dynamo marks what a module holds, parameters and buffers, apart from a call's inputs.
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None:
            places.append(place)
    return places
