"""Arrays of the caller that a model's outputs are written into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from frontends.imported_model import TensorSpec
from relaxc.bind_inputs import kind_of
from relaxc.errors import InvalidInput


class BoundOutputs:
    """Checked arrays by output name. Outputs that have none are fresh in each call."""

    def __init__(
        self, specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        """Take arrays by position, None for an output that stays fresh, and by name.

        Raises:
            InvalidInput: If there are too many, a name is unknown or given twice, an array's dtype
                or a fixed size is another than the output's, it cannot be written, elements of it
                share memory, or two arrays do: the output copied last would overwrite the other.
        """
        known = {spec.name: spec for spec in specs}
        if len(args) > len(specs):
            raise InvalidInput(f"the model has {len(specs)} outputs, got {len(args)} arrays")
        self.arrays = {
            spec.name: array for spec, array in zip(specs, args, strict=False) if array is not None
        }
        for name, array in named.items():
            if name not in known:
                raise InvalidInput(f"no output is called {name!r}: {', '.join(known)}", tensor=name)
            if name in self.arrays:
                raise InvalidInput(f"output {name!r} is given by position and by name", tensor=name)
            self.arrays[name] = array
        for name, array in self.arrays.items():
            _check(known[name], array, {})
            if (obstacle := _obstacle(array)) is not None:
                raise InvalidInput(f"output {name!r}: {obstacle}", tensor=name)
        for (name, array), (other, second) in combinations(self.arrays.items(), 2):
            if _share_memory(array, second):
                text = f"outputs {name!r} and {other!r} are bound to arrays that share memory"
                raise InvalidInput(text, tensor=other)

    def check_sizes(self, specs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> None:
        """Check the arrays against the sizes of one call, before it runs.

        Raises:
            InvalidInput: Naming the output, what was bound and what the call gives.
        """
        for spec in specs:
            if spec.name in self.arrays:
                _check(spec, self.arrays[spec.name], sizes)

    def write(self, spec: TensorSpec, result: Any) -> Any:
        """Copy a result into its array and return that, or return the result if it has none.

        Raises:
            InvalidInput: If the result's shape, where only the run tells it, is not the array's.
        """
        target = self.arrays.get(spec.name)
        if target is None:
            return result
        if tuple(target.shape) != tuple(result.shape):
            raise _mismatch(spec, target, f"the call gives {tuple(map(int, result.shape))}")
        if kind_of(target) == "torch":
            import torch

            torch_result = result if kind_of(result) == "torch" else torch.from_dlpack(result)
            return target.copy_(torch_result)
        plain = result if isinstance(result, np.ndarray) else _to_numpy(result)
        if isinstance(target, np.ndarray):
            np.copyto(target, plain)
        else:
            target.copyfrom(plain)
        return target


def _check(spec: TensorSpec, array: Any, sizes: Mapping[str, int]) -> None:
    kind = kind_of(array)
    if kind == "dlpack" and not hasattr(array, "copyfrom"):
        raise InvalidInput(f"output {spec.name!r}: cannot write into {type(array).__name__}")
    if str(array.dtype).removeprefix("torch.") != spec.dtype:
        raise _mismatch(spec, array, f"the model gives {spec.dtype}")
    expected = [sizes.get(d, d) if isinstance(d, str) else d for d in spec.shape]
    fits = len(array.shape) == len(expected) and all(
        isinstance(want, str) or int(got) == want
        for got, want in zip(array.shape, expected, strict=True)
    )
    if not fits:
        raise _mismatch(spec, array, f"the model gives {expected}")
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise InvalidInput(f"output {spec.name!r}: the array is read-only", tensor=spec.name)


def _obstacle(array: Any) -> str | None:
    """Return why the memory of an array cannot take an output, None if it can."""
    if isinstance(array, np.ndarray):
        steps, width = array.strides, array.itemsize
    elif kind_of(array) == "torch":
        if array.is_meta:
            return "a tensor on the meta device has no memory"
        if array.requires_grad:
            return "the tensor requires a gradient: bind its .detach()"
        steps, width = array.stride(), 1
    else:
        return None
    shared = _elements_overlap(tuple(map(int, array.shape)), steps, width)
    return "elements of the array share memory" if shared else None


def _elements_overlap(shape: Sequence[int], steps: Sequence[int], width: int) -> bool:
    """Return whether two elements of a strided array share memory.

    Args:
        shape: Size of each axis.
        steps: Distance of neighbours along each axis, in the unit of `width`.
        width: What one element takes.
    """
    if 0 in shape:
        return False
    reach, nested = width, True
    for step, size in sorted(zip(map(abs, steps), shape, strict=True)):
        nested = nested and (size == 1 or step >= reach)
        reach += step * (size - 1)
    if nested:  # a step of each axis leaps over all that the axes of smaller steps reach
        return False
    if prod(shape) * width > reach:  # more elements than places
        return True
    places = np.zeros(1, np.int64)  # axes may interleave without a shared element: compare all
    for step, size in zip(steps, shape, strict=True):
        places = np.add.outer(places, step * np.arange(size, dtype=np.int64)).ravel()
    return bool((np.diff(np.sort(places)) < width).any())


def _share_memory(one: Any, other: Any) -> bool:
    return one is other or np.shares_memory(_view(one), _view(other))


def _view(array: Any) -> np.ndarray:
    """Return the array's memory as NumPy sees it; nothing of it where NumPy cannot."""
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    except (BufferError, RuntimeError, TypeError):  # another device, or a dtype NumPy lacks
        return np.empty(0)


def _mismatch(spec: TensorSpec, array: Any, what: str) -> InvalidInput:
    dtype = str(array.dtype).removeprefix("torch.")
    shape = tuple(map(int, array.shape))
    return InvalidInput(f"output {spec.name!r} is bound to {dtype}{list(shape)}: {what}")


def _to_numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value.numpy()
