"""Parameters of a module that a model takes as inputs, given once for all calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from frontends.imported_model import TensorSpec
from relaxc.bind_inputs import check_input, kind_of, to_tensor
from relaxc.element_sample import ElementSample, versions
from relaxc.errors import InvalidInput
from relaxc.preparation import results_of
from relaxc.stored_elements import to_stored


class BoundParameter:
    """One parameter: its memory as the compiled code reads it, or what is copied in each call."""

    def __init__(self, spec: TensorSpec, value: Any) -> None:
        """Take a value that fits `spec`."""
        self._spec, self._given = spec, value
        try:
            self._kind = kind_of(value)
        except InvalidInput as fault:
            raise InvalidInput(f"parameter {spec.name!r}: {fault.message}") from None
        check_input(spec, value, {})
        self._value = to_stored(value, self._kind, spec.dtype)
        self._shared: tuple[Any, tuple[Any, ...], Any] | None = None

    def tensor(self, device: Any) -> Any:
        """Return the parameter as it is now, as a tensor on a device.

        Raises:
            InvalidInput: If somebody has given it `data` that does not fit.
        """
        shared, place = self._shared, self.place
        if shared is not None and shared[0] == device and shared[1] == place:
            return shared[2]
        check_input(self._spec, self._given, {})
        tensor = to_tensor(self._value, self._kind, device)
        if tensor.data_ptr() == place[0]:
            self._shared = device, place, tensor
        return tensor

    @property
    def place(self) -> tuple[Any, ...]:
        """Where its memory is, and how it lies there: that of a torch tensor's `data` changes."""
        value = self._value
        if self._kind == "numpy":
            return value.__array_interface__["data"][0], value.shape, value.strides
        if self._kind == "torch":
            return value.data_ptr(), value.shape, value.stride(), value.dtype
        return (int(value.data_ptr()) if hasattr(value, "data_ptr") else 0,)

    @property
    def counted(self) -> Any:
        """The torch tensor on the CPU whose changes torch counts, None if it is something else."""
        value = self._value if self._kind == "torch" else None
        return None if value is None or value.device.type != "cpu" else value


class BoundParameters:
    """The parameters that a model is called with, and what is prepared of them.

    What depends on parameters alone is computed at the first call, and again where torch has
    counted a change of one, a sample of its elements shows one, or its memory or strides are
    others. Arrays that nobody counts, such as NumPy's, are prepared in each call. Safe to use from
    several threads.
    """

    def __init__(
        self, parameters: Mapping[str, BoundParameter], prepared: Sequence[str] = ()
    ) -> None:
        """Take parameters by name; `prepared` are the names of those that are prepared."""
        self.parameters = parameters
        self._prepared = [parameters[name] for name in prepared if name in parameters]
        self._kept: tuple[Any, ElementSample, Any, list[Any]] | None = None

    def prepared(self, prepare: Callable[..., Any], device: Any) -> list[Any]:
        """Return what `prepare` makes of the parameters as they are now, on a device."""
        tensors = [parameter.counted for parameter in self._prepared]
        counts = None if any(tensor is None for tensor in tensors) else versions(tensors)
        state = counts, [parameter.place for parameter in self._prepared]
        kept = self._kept
        if counts is not None and kept is not None:
            known, sample, where, results = kept
            if known == state and where == device and sample.holds():
                return results
        # Taken before the parameters are read: a change in between is seen by the next call.
        sample = ElementSample(tensors if counts is not None else ())
        results = results_of(prepare(*(parameter.tensor(device) for parameter in self._prepared)))
        self._kept = (state, sample, device, results) if counts is not None else None
        return results


def unshared(results: list[Any], kept: Sequence[Any]) -> list[Any]:
    """Copy each result that is one of the tensors kept: a caller may write to it."""
    addresses = {tensor.data_ptr() for tensor in kept}
    if not addresses:
        return results
    return [r.copyto(r.device) if r.data_ptr() in addresses else r for r in results]


def bound_parameters(specs: Sequence[TensorSpec], source: Any) -> dict[str, Any]:
    """Return the parameters of a module, or of a mapping, by name.

    Raises:
        InvalidInput: If the model takes none, one is missing or does not fit, or `source` is of
            another kind.
    """
    if not specs:
        raise InvalidInput("no input is a parameter: compile with keep_params=True")
    values = _named(source)
    missing = [spec.name for spec in specs if spec.name not in values]
    if missing:
        raise InvalidInput(f"missing parameter: {', '.join(missing)}", tensor=missing[0])
    return {spec.name: BoundParameter(spec, values[spec.name]) for spec in specs}


def _named(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if not (hasattr(source, "named_parameters") and hasattr(source, "named_buffers")):
        raise InvalidInput(
            f"expected a torch.nn.Module or a mapping from names, got {type(source).__name__}"
        )
    # A parameter that two modules share has two names; buffers may be left out of a state_dict.
    return {
        **dict(source.named_parameters(remove_duplicate=False)),
        **dict(source.named_buffers(remove_duplicate=False)),
    }
