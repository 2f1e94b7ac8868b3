"""What the compiled code made of parameters, kept for as long as these are what they were."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxc.compiled_model import CompiledModel
from relaxc.preparation import Preparation, results_of
from relaxc.torch_compile.element_sample import ElementSample
from relaxc.torch_compile.held_parameters import Held, picker

_VERSION = operator.attrgetter("_version")


@dataclass(frozen=True)
class _Prepared:
    """Results of one preparation.

    Attributes:
        held: The parameters as they were converted: another one where an address has changed.
        versions: Of each parameter.
        sample: Some of their elements.
        results: The tensors.
        taken: The addresses of the tensors.
    """

    held: Held
    versions: tuple[int, ...] | None
    sample: ElementSample
    results: list[Any]
    taken: frozenset[int]


class PreparedWeights:
    """Parameters packed and folded, anew only when one of them has changed.

    torch counts the changes of a tensor (`_version`), but for those made through `.data`; a sample
    of the elements tells these. Tensors made in inference mode have no count: they are prepared in
    each call. Safe to use from several threads at once: what is kept is replaced as a whole.
    """

    def __init__(self, model: CompiledModel, preparation: Preparation, places: Sequence[int]):
        """Prepare nothing yet.

        Args:
            model: The compiled graph.
            preparation: Which of its inputs go where.
            places: For each input in `preparation.takes`, the place of the graph's argument.
        """
        self._model, self._takes = model, preparation.takes
        self._pick = picker(places)
        self._kept: _Prepared | None = None

    def results(
        self, given: list[Any], inputs: list[Any], held: Held
    ) -> tuple[list[Any], frozenset[int]]:
        """Return the prepared tensors, and their addresses.

        Args:
            given: The graph's arguments.
            inputs: The compiled function's inputs, as far as they are parameters.
            held: What these inputs were taken from.
        """
        kept, parameters = self._kept, self._pick(given)
        try:
            versions = tuple(map(_VERSION, parameters))
        except RuntimeError:  # a tensor made in inference mode
            versions = None
        if (
            kept is None
            or versions is None
            or kept.held is not held
            or kept.versions != versions
            or not kept.sample.holds()
        ):
            # Taken before the parameters are read: a change in between is seen by the next call.
            sample = ElementSample(parameters)
            results = self._prepare(inputs)
            addresses = frozenset(result.data_ptr() for result in results)
            kept = self._kept = _Prepared(held, versions, sample, results, addresses)
        return kept.results, kept.taken

    def _prepare(self, inputs: list[Any]) -> list[Any]:
        prepare, _ = self._model.prepared_entry()
        return results_of(prepare(*(inputs[number] for number in self._takes)))
