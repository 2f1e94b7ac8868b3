"""Calls a compiled graph with torch tensors: no copy in, no copy out, no check that Dynamo made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from frontends.torch.captured_graph import Argument, Result
from relaxc.bind_inputs import canonical
from relaxc.compiled_model import CompiledModel
from relaxc.errors import RelaxcError
from relaxc.run_fault import run_error
from relaxc.run_time_pool import CallSizes
from relaxc.thread_pool import use_threads
from relaxc.torch_compile.held_parameters import HeldParameters, Read
from relaxc.torch_compile.prepared_weights import PreparedWeights

_ALIGNMENT = 63  # low bits of an address that the generated code's vector loads cannot have


class CallPlan:
    """A compiled graph as AOTAutograd calls it: a list of arguments in, a list of results out.

    Dynamo's guards hold: shapes, dtypes and strides are those that were traced. Tensors go in and
    out by DLPack; only one that is not dense or not aligned to 64 bytes is copied. A result that
    shares memory with an argument or another result is copied, for a caller may write to it.
    """

    def __init__(
        self,
        model: CompiledModel,
        arguments: tuple[Argument, ...],
        results: tuple[Result, ...],
        name: str,
        parameters: Collection[int] = (),
    ) -> None:
        """Prepare calls of `model`.

        Args:
            model: The compiled graph.
            arguments: What its inputs are made of.
            results: What the graph's results are made of.
            name: What an error calls the graph.
            parameters: Which of the graph's arguments stay in place from call to call.
        """
        self.model, self.name = model, name
        # AOTAutograd hands the arguments over as one list, which it lets us empty.
        self._boxed_call = True
        readers = [(argument, _reader(argument)) for argument in arguments]
        fixed = {
            slot: (argument.place, read)
            for slot, (argument, read) in enumerate(readers)
            if argument.kind == "tensor" and argument.place in parameters
        }
        self._parameters = HeldParameters(len(readers), fixed)
        moving = [(slot, read) for slot, (_, read) in enumerate(readers) if slot not in fixed]
        self._prepared: PreparedWeights | None = None
        preparation = model.preparation
        if preparation is not None:
            places = [arguments[slot].place for slot in preparation.takes]
            self._prepared = PreparedWeights(model, preparation, places)
            moving = [(preparation.rest.index(slot), read) for slot, read in moving]
        self._moving = moving
        self._results = results
        self._single = len(model.outputs) == 1
        self._sizes = CallSizes(model.inputs, model.outputs, model.report)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run the graph.

        Raises:
            RunError: If sizes, indices or memory that the data decides do not fit.
        """
        given = list(arguments)
        arguments.clear()
        use_threads(self.model.threads)
        try:
            held = self._parameters.held(given)
            if self._prepared is None:
                main, _ = self.model.entry()
            else:
                held = self._prepared.main(given, held)
                _, main = self.model.prepared_entry()
            inputs, moving = held.filled(given), []
            for slot, read in self._moving:
                inputs[slot] = tensor = read(given)
                moving.append(tensor)
            raw = main(*inputs)
        except RelaxcError:
            raise
        except Exception as fault:  # whatever TVM raises is one kind of error to users
            raise run_error(fault, self.name) from fault
        outputs = [raw] if self._single else list(raw)
        outputs = [o if isinstance(o, torch.Tensor) else torch.from_dlpack(o) for o in outputs]
        if self._sizes.vary:
            self._sizes.note(*(tensor.shape for tensor in (*moving, *outputs)))
        return self._finish(given, _unshared(outputs, moving, held.taken))

    def _finish(self, given: list[Any], outputs: Sequence[torch.Tensor]) -> list[Any]:
        finished: list[Any] = []
        for result in self._results:
            if result.kind == "none":
                finished.append(None)
                continue
            if result.kind == "size":
                finished.append(int(outputs[result.place]))
                continue
            tensor = (given if result.kind == "argument" else outputs)[result.place]
            if result.order is not None:
                tensor = tensor.permute(result.order)
            for view in result.views:
                tensor = view(tensor, given)
            finished.append(tensor)
        return finished


def _unshared(
    outputs: list[torch.Tensor], inputs: Sequence[torch.Tensor], fixed: Collection[int]
) -> list[torch.Tensor]:
    """Copy each output that lies where an input, a parameter or another output does."""
    taken = {tensor.data_ptr() for tensor in inputs}
    for place, tensor in enumerate(outputs):
        address = tensor.data_ptr()
        if (address in taken or address in fixed) and tensor.numel():
            outputs[place] = tensor.clone()
        taken.add(address)
    return outputs


def _reader(argument: Argument) -> Read:
    """Return what takes one parameter of the compiled function out of the graph's arguments."""
    place, order, compact = argument.place, argument.order, argument.compact
    if argument.kind == "size":
        return lambda given: torch.tensor([given[place]], dtype=torch.int64)
    if argument.kind == "seed":
        return lambda given: torch.randint(-(1 << 63), (1 << 63) - 1, (1,), dtype=torch.int64)

    def read(given: list[Any]) -> torch.Tensor:
        tensor = given[place]
        if order is not None:
            tensor = tensor.permute(order)
        plain = _plain(tensor)
        return plain if compact else canonical(plain.detach())

    return read


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is contiguous and aligned: itself, or a copy."""
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.data_ptr() & _ALIGNMENT and tensor.numel():
        tensor = tensor.detach().clone()
    return tensor
