"""Run each family of kernels on the OpenCL device there is; print how far off its numbers are.

    oclgrind --data-races python -m tests.cuda.opencl_process [family ...]

With `--without-barriers` the barriers of the kernels are left out, which a checker must see.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from benchmarks.gpu import relative_error as error_of
from benchmarks.gpu_cases import FAMILIES
from benchmarks.gpu_engines import torch_reference
from tests.cuda.opencl_kernels import run_model, schedule_for

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_BREAK = "--without-barriers"


def relative_error(name: str, *, barriers: bool = True) -> float:
    """Return the largest error of a family, relative to the largest number of the reference."""
    case = FAMILIES[name]
    model = schedule_for("opencl", case.source(small=True)[0])
    source = model.source()
    if not barriers:
        assert BARRIER in source
        source = source.replace(BARRIER, "")
    inputs = case.inputs(small=True)
    (result,) = run_model(model, inputs, source)
    return error_of(result, torch_reference(case, inputs))


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
