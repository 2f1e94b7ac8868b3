"""Run each family of kernels on the OpenCL device there is; print how far off its numbers are.

    oclgrind --data-races python -m tests.cuda.opencl_process [family ...]

With `--without-barriers` the barriers of the kernels are left out, which a checker must see.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np

from tests.cuda.families import FAMILIES
from tests.cuda.opencl_kernels import run_model, schedule_for

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_BREAK = "--without-barriers"


def relative_error(name: str, *, barriers: bool = True) -> float:
    """Return the largest error of a family, relative to the largest number of the reference."""
    family = FAMILIES[name]
    model = schedule_for("opencl", family.module())
    source = model.source()
    if not barriers:
        assert BARRIER in source
        source = source.replace(BARRIER, "")
    inputs = family.inputs()
    expected = family.reference(*inputs)
    (result,) = run_model(model, inputs, source)
    assert result.shape == expected.shape
    return float(np.abs(result - expected).max() / np.abs(expected).max())


def main(arguments: Sequence[str]) -> None:
    """Run the families named, else all."""
    names = [name for name in arguments if name != _BREAK] or list(FAMILIES)
    for name in names:
        print(
            json.dumps(
                {"name": name, "error": relative_error(name, barriers=_BREAK not in arguments)}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
