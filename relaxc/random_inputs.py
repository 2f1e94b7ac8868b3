"""Make seeded random inputs for a model, so that `check` and `bench` repeat exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from frontends.imported_model import TensorSpec
from frontends.storage_types import is_stored
from relaxc.errors import InvalidInput

DEFAULT_DIM = 4  # size of a symbolic dimension that the user gives no size for


def random_inputs(
    specs: Sequence[TensorSpec], *, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Return one array per input.

    Floats are standard normal; integers are 0 or 1, which is a valid token, index, mask and
    segment in every model; booleans are fair coins. Types that NumPy lacks are `ml_dtypes` arrays.

    Args:
        specs: Inputs of the model.
        seed: Seed of the generator.
        dims: Size of each symbolic dimension by name; others take `DEFAULT_DIM`, and one called
            like a batch takes 1.

    Raises:
        InvalidInput: If a dtype has neither.
    """
    rng = np.random.default_rng(seed)
    sizes = dict(dims or {})
    arrays: dict[str, np.ndarray] = {}
    for spec in specs:
        shape = tuple(_size(dim, sizes) for dim in spec.shape)
        if spec.dtype == "bool":
            arrays[spec.name] = rng.random(shape) < 0.5
        elif spec.dtype.startswith(("int", "uint")):
            arrays[spec.name] = rng.integers(0, 2, shape).astype(_of(spec.dtype))
        elif spec.dtype.startswith(("float", "bfloat")):
            values = rng.standard_normal(shape)
            unsigned = spec.dtype.startswith("float8_e8m0")
            arrays[spec.name] = (np.abs(values) if unsigned else values).astype(_of(spec.dtype))
        else:
            raise InvalidInput(f"cannot make random values of type {spec.dtype}", tensor=spec.name)
    return arrays


def _of(dtype: str) -> np.dtype:
    """Return the dtype of that name, NumPy's own or one of `ml_dtypes`."""
    if not is_stored(dtype) and dtype != "bfloat16":
        return np.dtype(dtype)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype))


def _size(dim: int | str, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    return sizes.setdefault(dim, 1 if "batch" in dim.lower() or dim in ("N", "n") else DEFAULT_DIM)
