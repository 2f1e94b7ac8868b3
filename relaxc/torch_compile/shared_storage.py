"""Arguments that share memory, in a graph that writes to some of them.

AOTAutograd compiles for the way in which the arguments of the first call share memory. Nothing
compares later calls with that: Dynamo's guards tell one tensor that is given twice, not two views
that overlap. Such a call would read an argument as it was before another one was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from relaxc.errors import RunError
from relaxc.torch_compile.records import LOG


def writes_arguments() -> bool:
    """Tell whether the graph that AOTAutograd compiles now writes to an argument."""
    metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
    return metadata is None or any(info.mutates_data for info in metadata.input_info)


class SharedStorage:
    """A compiled graph whose arguments share memory as it was traced, and eager for other calls."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        graph: torch.fx.GraphModule,
        traced: Sequence[Any],
        parameters: Collection[int],
        strict: bool,
    ) -> None:
        """Note how arguments share memory.

        Args:
            compiled: Runs the graph that AOTAutograd made.
            graph: The graph as Dynamo captured it, which writes as eager does.
            traced: The arguments that it was traced with.
            parameters: Places of arguments that nobody gives in a call.
            strict: Whether a call of another kind is an error.
        """
        self._compiled, self._graph, self._strict = compiled, graph, strict
        self._places = [
            place
            for place, value in enumerate(traced)
            if isinstance(value, torch.Tensor) and place not in parameters
        ]
        self._traced = self._shared(traced)
        self._is_told = False

    def __call__(self, *arguments: Any) -> Any:
        """Run the graph.

        Raises:
            RunError: In strict mode, if arguments share memory in another way.
        """
        if self._shared(arguments) == self._traced:
            return self._compiled(*arguments)
        reason = (
            "a graph writes to an argument, and its arguments share memory in another way than "
            "those that it was compiled for"
        )
        if self._strict:
            raise RunError(reason)
        if not self._is_told:
            LOG.warning("relaxc leaves such calls to eager: %s", reason)
            self._is_told = True
        return self._graph(*arguments)

    def _shared(self, arguments: Sequence[Any]) -> tuple[tuple[int, int, int], ...]:
        """Return of each argument that shares memory with others: whose, how much, and where."""
        tensors = [arguments[place] for place in self._places]
        # Of a storage that is traced nobody can ask the address.
        storages = [tensor.untyped_storage()._cdata for tensor in tensors]
        if len(set(storages)) == len(storages):
            return ()
        return tuple(
            (
                storages.index(storage),
                int(tensor.untyped_storage().nbytes()),
                int(tensor.storage_offset()),
            )
            for storage, tensor in zip(storages, tensors, strict=True)
            if storages.count(storage) > 1
        )
