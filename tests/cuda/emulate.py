"""Run a scheduled function under the emulator: its kernels, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import PrimFunc

from tests.cuda.emulator.compile_kernel import kernel_parameters
from tests.cuda.emulator.launch import Grid, Traffic, launch

_DIMENSIONS = ("x", "y", "z")


def kernel_statements(body: Any) -> Iterator[tirx.Stmt]:
    """Yield the statements that become kernels: those under the root block and allocations."""
    if isinstance(body, tvm.s_tir.SBlockRealize) and not len(body.block.iter_vars):
        yield from kernel_statements(body.block.body)
    elif isinstance(body, tirx.SeqStmt):
        for each in body.seq:
            yield from kernel_statements(each)
    elif isinstance(body, tirx.AttrStmt) and body.attr_key == "pragma_scope":
        yield from kernel_statements(body.body)
    elif not isinstance(body, tirx.AllocBuffer):
        yield body


def launch_grid(func: PrimFunc, sizes: Mapping[str, int] | None = None) -> Grid:
    """Return how a function with one kernel, its threads written out, is launched.

    Args:
        func: A scheduled function: threads are `launch_thread` statements or bound loops.
        sizes: The values of its symbolic sizes.
    """
    return grid_of(func.body, sizes)


def grid_of(kernel: tirx.Stmt, sizes: Mapping[str, int] | None = None) -> Grid:
    """Return how one kernel, a statement of a scheduled function, is launched."""
    extents: dict[str, int] = {}
    shared = [0]

    def visit(stmt: tirx.AttrStmt) -> None:
        if stmt.attr_key == "thread_extent":
            extents[str(stmt.node.thread_tag)] = _value(stmt.value, sizes or {})

    def visit_loop(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            extents[str(loop.thread_binding.thread_tag)] = _value(loop.extent, sizes or {})

    def allocate(stmt: tirx.AllocBuffer) -> None:
        buffer = stmt.buffer
        if str(buffer.scope()) == "shared.dyn":
            shared[0] += int(np.prod([int(s) for s in buffer.shape])) * _bytes(buffer.dtype)

    tvm_ffi.structural_walk(
        kernel,
        [(tirx.AttrStmt, visit), (tirx.For, visit_loop), (tirx.AllocBuffer, allocate)],
        order="pre",
    )
    blocks = [extents.get(f"blockIdx.{d}", 1) for d in _DIMENSIONS]
    threads = [extents.get(f"threadIdx.{d}", 1) for d in _DIMENSIONS]
    return Grid(blocks, threads, shared[0])


def run_kernels(
    func: PrimFunc,
    source: str,
    arrays: Sequence[np.ndarray],
    *,
    kernel: str = "main_kernel",
    first: str = "",
    sizes: Mapping[str, int] | None = None,
    checked: bool = True,
    backward: bool = False,
) -> Iterator[Traffic]:
    """Run a function's kernels on arrays in the order of its parameters; yield what each moves.

    Args:
        func: The scheduled function, as `launch_grid` wants it; what it allocates begins as NaN.
        source: Its CUDA C, which a test may have broken.
        arrays: Inputs and results, in the order of the parameters.
        kernel: The first kernel's name in the source; the next ones' are numbered.
        first: What runs in its place, "" for itself.
        sizes: The values of symbolic sizes, by name.
        checked: As in `launch`.
        backward: As in `launch`.
    """
    buffers = [p for p in func.params if hasattr(p, "shape")]
    given: dict[str, np.ndarray | int] = dict(sizes or {})
    given |= {f"{_identifier(p.name)}_ptr": a for p, a in zip(buffers, arrays, strict=True)}
    given |= {f"{_identifier(b.name)}_ptr": _empty(b, sizes or {}) for b in _allocated(func)}
    for at, statement in enumerate(kernel_statements(func.body)):
        name = f"{kernel}_{at}" if at else first or kernel
        missing = set(kernel_parameters(source)[name]) - set(given)
        assert not missing, f"the kernel takes {missing}, known are {sorted(given)}"
        grid = grid_of(statement, sizes)
        yield launch(source, name, grid, given, checked=checked, backward=backward)


def run_kernel(func: PrimFunc, source: str, arrays: Sequence[np.ndarray], **how: Any) -> Traffic:
    """Run the one kernel of a function, as `run_kernels` does."""
    (traffic,) = run_kernels(func, source, arrays, **how)
    return traffic


def _allocated(func: PrimFunc) -> list[Any]:
    """Return the buffers in global memory that a function has beside its parameters."""
    found: list[Any] = []

    def visit(stmt: tirx.AllocBuffer) -> None:
        if str(stmt.buffer.scope()) == "global":
            found.append(stmt.buffer)

    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, visit), order="pre")
    return found


def _empty(buffer: Any, sizes: Mapping[str, int]) -> np.ndarray:
    return np.full([_value(size, sizes) for size in buffer.shape], np.nan, str(buffer.dtype))


def _value(extent: tirx.Expr, sizes: Mapping[str, int]) -> int:
    def known(var: tirx.Var) -> tirx.Expr:
        return tirx.IntImm(var.ty.dtype, sizes[var.name])

    from tvm.sym import Analyzer

    return int(Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, known))))


def _bytes(dtype: object) -> int:
    digits = re.search(r"\d+", str(dtype))
    assert digits is not None
    return int(digits[0]) // 8


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
