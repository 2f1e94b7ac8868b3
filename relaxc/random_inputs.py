"""Make seeded random inputs for a model, so that `check` and `bench` repeat exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from frontends.imported_model import TensorSpec
from relaxc.errors import InvalidInput

DEFAULT_DIM = 4  # size of a symbolic dimension that the user gives no size for


def random_inputs(
    specs: Sequence[TensorSpec], *, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Return one array per input.

    Floats are standard normal; integers are 0 or 1, which is a valid token, index, mask and
    segment in every model; booleans are fair coins.

    Args:
        specs: Inputs of the model.
        seed: Seed of the generator.
        dims: Size of each symbolic dimension by name; others take `DEFAULT_DIM`, and one called
            like a batch takes 1.

    Raises:
        InvalidInput: If a dtype has no NumPy counterpart.
    """
    rng = np.random.default_rng(seed)
    sizes = dict(dims or {})
    arrays: dict[str, np.ndarray] = {}
    for spec in specs:
        shape = tuple(_size(dim, sizes) for dim in spec.shape)
        if spec.dtype == "bool":
            arrays[spec.name] = rng.random(shape) < 0.5
        elif spec.dtype.startswith(("int", "uint")):
            arrays[spec.name] = rng.integers(0, 2, shape).astype(spec.dtype)
        elif spec.dtype in ("float16", "float32", "float64"):
            arrays[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
        else:
            raise InvalidInput(f"cannot make random values of type {spec.dtype}", tensor=spec.name)
    return arrays


def _size(dim: int | str, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return sizes.setdefault(dim, 1 if "batch" in dim.lower() or dim in ("N", "n") else DEFAULT_DIM)
