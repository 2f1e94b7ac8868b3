"""Calls a compiled graph with torch tensors: no copy in, no copy out, no check that Dynamo made."""

from __future__ import annotations

import threading
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
        """Prepare calls of `model`: what no call changes is decided here.

        Args:
            model: The compiled graph.
            arguments: What its inputs are made of.
            results: What the graph's results are made of.
            name: What an error calls the graph.
            parameters: Which of the graph's arguments stay in place from call to call.
        """
        self.model, self.name = model, name
        # AOTAutograd hands the arguments over as one list.
        self._boxed_call = True
        readers = [(argument, _reader(argument)) for argument in arguments]
        fixed = {
            slot: (argument.place, read)
            for slot, (argument, read) in enumerate(readers)
            if argument.kind == "tensor" and argument.place in parameters
        }
        self._moving = [(slot, read) for slot, (_, read) in enumerate(readers) if slot not in fixed]
        parameters_held = HeldParameters(len(readers), fixed)
        self._held = parameters_held.held
        preparation = model.preparation
        if preparation is not None:
            places = [arguments[slot].place for slot in preparation.takes]
            self._held = PreparedWeights(model, preparation, places, parameters_held).held
            self._moving = [(preparation.rest.index(slot), read) for slot, read in self._moving]
        self._threads, self._local = model.threads, threading.local()
        self._single = len(model.outputs) == 1
        computed = [Result("tensor", place) for place in range(len(model.outputs))]
        self._results = None if list(results) == computed else results
        self._sizes = CallSizes(model.inputs, model.outputs, model.report)

    def __call__(self, given: list[Any]) -> list[Any]:
        """Run the graph.

        Raises:
            RunError: If sizes, indices or memory that the data decides do not fit.
        """
        main = getattr(self._local, "main", None) or self._link()
        use_threads(self._threads)
        try:
            held = self._held(given)
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
        taken = {tensor.data_ptr() for tensor in moving}
        for place, output in enumerate(outputs):
            if not isinstance(output, torch.Tensor):
                output = outputs[place] = torch.from_dlpack(output)
            address = output.data_ptr()
            # What lies where an input, a parameter or another result does is not the caller's yet.
            if (address in taken or address in held.taken) and output.numel():
                outputs[place] = output.clone()
            taken.add(address)
        if self._sizes.vary:
            self._sizes.note(*(tensor.shape for tensor in (*moving, *outputs)))
        return outputs if self._results is None else self._finish(self._results, given, outputs)

    def _link(self) -> Any:
        """Return the function that this thread calls; the model keeps its machine alive."""
        model = self.model
        main = model.entry()[0] if model.preparation is None else model.prepared_entry()[1]
        self._local.main = main
        return main

    @staticmethod
    def _finish(results: Sequence[Result], given: list[Any], outputs: list[Any]) -> list[Any]:
        """Make the graph's results of those of the compiled function."""
        finished: list[Any] = []
        for result in results:
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
