"""What the compiled code made of parameters, kept for as long as these are what they were."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from relaxc.compiled_model import CompiledModel
from relaxc.element_sample import ElementSample, versions
from relaxc.huge_pages import collapse
from relaxc.preparation import Preparation, results_of
from relaxc.torch_compile.held_parameters import Held, HeldParameters, picker

# After so many calls it pays to move weights to where reading them takes least.
SETTLED = 16


@dataclass(frozen=True)
class _Prepared:
    """Results of one preparation.

    Attributes:
        held: The parameters as they were converted: another one where an address has changed.
        versions: Of each parameter; None if one has no count.
        sample: Some of their elements.
        main: The inputs of the function that is left, the results among them.
        results: What was prepared.
        calls: Counts the calls that it serves.
    """

    held: Held
    versions: tuple[int, ...] | None
    sample: ElementSample
    main: Held
    results: list[Any]
    calls: Iterator[int] = field(default_factory=itertools.count)


class PreparedWeights:
    """Parameters packed and folded, anew only when one of them has changed.

    torch counts the changes of a tensor (`_version`), but for those made through `.data`; a sample
    of the elements tells these. Tensors made in inference mode have no count: they are prepared in
    each call. Safe to use from several threads at once: what is kept is replaced as a whole.
    """

    def __init__(
        self,
        model: CompiledModel,
        preparation: Preparation,
        places: Sequence[int],
        parameters: HeldParameters,
    ) -> None:
        """Prepare nothing yet.

        Args:
            model: The compiled graph.
            preparation: Which of its inputs go where.
            places: For each input in `preparation.takes`, the place of the graph's argument.
            parameters: The inputs that are parameters.
        """
        self._model, self._takes, self._rest = model, preparation.takes, preparation.rest
        self._pick, self._parameters = picker(places), parameters
        self._kept: _Prepared | None = None

    def held(self, given: list[Any]) -> Held:
        """Return the inputs of the function that is left, as far as they stay.

        Args:
            given: The graph's arguments.
        """
        held, kept, parameters = self._parameters.held(given), self._kept, self._pick(given)
        now = versions(parameters)
        if (
            kept is None
            or now is None
            or kept.held is not held
            or kept.versions != now
            or not kept.sample.holds()
        ):
            # Taken before the parameters are read: a change in between is seen by the next call.
            sample = ElementSample(parameters)
            results = self._prepare(held.filled(given))
            left = self._left(held, results)
            kept = self._kept = _Prepared(held, now, sample, left, results)
        if next(kept.calls) == SETTLED:
            collapse(map(torch.from_dlpack, kept.results))
        return kept.main

    def _prepare(self, inputs: list[Any]) -> list[Any]:
        prepare, _ = self._model.prepared_entry()
        return results_of(prepare(*(inputs[number] for number in self._takes)))

    def _left(self, held: Held, results: list[Any]) -> Held:
        """Return the inputs of `main` after a preparation: those of its own, then the results."""
        places = {number: place for place, number in enumerate(self._rest)}
        return Held(
            [*(held.inputs[number] for number in self._rest), *results],
            tuple((places[slot], read) for slot, read in held.copied if slot in places),
            held.taken.union(result.data_ptr() for result in results),
        )
