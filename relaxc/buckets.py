"""Buckets: sizes of symbolic dimensions for which a model is compiled a second time, as static.

`dynamic_shapes={"x": {1: [16, 64, 256]}}` compiles the model once with that dimension symbolic and
once for each listed size, all in one file that holds equal weights once. A call whose size is in
the list runs the kernels made for it. A size between two of them is padded to the next larger one
where that is proved to change nothing (`relax_passes.analysis.independent_axis`); any other size
runs the symbolic version, so every size gives the right result.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from frontends.imported_model import ImportedModel, TensorSpec
from relaxc.errors import InvalidInput

MAX_VERSIONS = 16  # each is compiled like a model of its own

# (input, axis) of each dimension that has buckets, and their sizes.
BucketLists = dict[tuple[str, int], tuple[int, ...]]


@dataclass(frozen=True)
class Buckets:
    """The versions in a compiled model.

    Attributes:
        sizes: Sizes of each dimension that has buckets, ascending, by the dimension's name.
        padded: Names of those along which inputs are padded to the next bucket.
    """

    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    padded: tuple[str, ...] = ()

    def choose(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """Return the smallest bucket of each dimension that a call fits, None if there is none.

        Args:
            sizes: Size of each symbolic dimension in the call.
        """
        chosen: dict[str, int] = {}
        for name, buckets in self.sizes.items():
            size = sizes.get(name)
            if size in buckets:
                chosen[name] = size
                continue
            larger = [bucket for bucket in buckets if size is not None and bucket >= size > 0]
            if name not in self.padded or not larger:
                return None
            chosen[name] = larger[0]
        return chosen or None

    def versions(self) -> list[dict[str, int]]:
        """Return the sizes of every specialised version."""
        if not self.sizes:
            return []
        products = itertools.product(*self.sizes.values())
        return [dict(zip(self.sizes, sizes, strict=True)) for sizes in products]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; `from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Buckets:
        """Rebuild the buckets from `to_json`'s dict."""
        sizes = {name: tuple(int(size) for size in each) for name, each in data["sizes"].items()}
        return Buckets(sizes, tuple(data["padded"]))


def entry_name(sizes: Mapping[str, int]) -> str:
    """Return the name of the function that is compiled for these sizes."""
    return "main_for_" + "_".join(f"{name}_{size}" for name, size in sorted(sizes.items()))


def split_buckets(dynamic_shapes: Any) -> BucketLists:
    """Return the dimensions for which `dynamic_shapes` gives a list of sizes.

    Raises:
        InvalidInput: If a list is empty or holds something else than positive sizes.
    """
    lists: BucketLists = {}
    for name, dims in dynamic_shapes.items() if isinstance(dynamic_shapes, Mapping) else ():
        if isinstance(dims, Mapping):
            pairs = list(dims.items())
        elif isinstance(dims, Sequence) and not isinstance(dims, str):
            pairs = list(enumerate(dims))
        else:
            continue
        for axis, wanted in pairs:
            if not isinstance(wanted, list | tuple):
                continue
            if not wanted or not all(type(size) is int and size > 0 for size in wanted):
                raise InvalidInput(
                    f"dynamic_shapes: buckets are a list of positive sizes, not {wanted!r}",
                    tensor=name,
                )
            lists[name, axis] = tuple(sorted(set(wanted)))
    return lists


def fix_sizes(
    dynamic_shapes: Any, lists: BucketLists, sizes: Mapping[tuple[str, int], int]
) -> dict[str, dict[int, Any]]:
    """Return `dynamic_shapes` with each list of buckets replaced by one of its sizes."""
    fixed: dict[str, dict[int, Any]] = {}
    for name, dims in dynamic_shapes.items():
        pairs = dims.items() if isinstance(dims, Mapping) else enumerate(dims)
        fixed[name] = {
            axis: sizes[name, axis] if (name, axis) in lists else wanted for axis, wanted in pairs
        }
    return fixed


def name_buckets(
    imported: ImportedModel, lists: BucketLists
) -> tuple[Buckets, dict[tuple[str, int], str]]:
    """Return the buckets by the names of their dimensions, and the name of each listed dimension.

    Raises:
        InvalidInput: If a dimension has two different lists, or there are too many versions.
    """
    specs = {spec.name: spec for spec in imported.inputs}
    names: dict[tuple[str, int], str] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for (tensor, axis), buckets in lists.items():
        dim = specs[tensor].shape[axis]
        assert isinstance(dim, str)  # a list makes a dimension symbolic
        if sizes.setdefault(dim, buckets) != buckets:
            raise InvalidInput(f"dynamic_shapes: {dim} has two lists of buckets", tensor=tensor)
        names[tensor, axis] = dim
    made = Buckets(sizes)
    if len(made.versions()) > MAX_VERSIONS:
        raise InvalidInput(
            f"dynamic_shapes: the buckets make {len(made.versions())} versions of the model, at "
            f"most {MAX_VERSIONS} are compiled"
        )
    return made, names


def pad(value: Any, spec: TensorSpec, chosen: Mapping[str, int]) -> Any:
    """Return an input with each dimension grown to its bucket.

    The last place is repeated: unlike zeros it is a value that the model takes, so that nothing
    divides by zero on the way.
    """
    for axis, dim in enumerate(spec.shape):
        size = chosen.get(dim) if isinstance(dim, str) else None
        missing = 0 if size is None else size - int(value.shape[axis])
        if missing > 0:
            value = _repeat_last(value, axis, missing)
    return value


def _repeat_last(value: Any, axis: int, count: int) -> Any:
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "narrow"):  # torch
        import torch

        last = value.narrow(axis, value.shape[axis] - 1, 1)
        return torch.cat([value, last.expand(*_with(value.shape, axis, count))], dim=axis)
    array = np.asarray(value)
    last = np.take(array, [-1], axis=axis)
    return np.concatenate([array, np.broadcast_to(last, _with(array.shape, axis, count))], axis)


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def crop(value: Any, spec: TensorSpec, sizes: Mapping[str, int]) -> Any:
    """Return an output without the places that padding added."""
    for axis, dim in enumerate(spec.shape):
        size = sizes.get(dim) if isinstance(dim, str) else None
        if size is None or size == value.shape[axis]:
            continue
        if hasattr(value, "narrow"):
            value = value.narrow(axis, 0, size).contiguous()
        else:
            value = np.ascontiguousarray(value[(slice(None),) * axis + (slice(size),)])
    return value
