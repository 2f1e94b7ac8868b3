"""Parameters of a module that a model takes as inputs, given once for all calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frontends.imported_model import TensorSpec
from relaxc.bind_inputs import check_input, kind_of, to_tensor
from relaxc.errors import InvalidInput
from relaxc.stored_elements import to_stored


class BoundParameter:
    """One parameter: its memory as the compiled code reads it, or what is copied in each call."""

    def __init__(self, spec: TensorSpec, value: Any) -> None:
        """Take a value that fits `spec`."""
        check_input(spec, value, {})
        self._kind = kind_of(value)
        self._value = to_stored(value, self._kind, spec.dtype)
        self._shared: tuple[Any, Any] | None = None

    def tensor(self, device: Any) -> Any:
        """Return the parameter as it is now, as a tensor on a device."""
        shared = self._shared
        if shared is not None and shared[0] == device:
            return shared[1]
        tensor = to_tensor(self._value, self._kind, device)
        if tensor.data_ptr() == _address(self._value, self._kind):
            self._shared = device, tensor
        return tensor


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


def _address(value: Any, kind: str) -> int:
    if kind == "numpy":
        return int(value.__array_interface__["data"][0])
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else 0
