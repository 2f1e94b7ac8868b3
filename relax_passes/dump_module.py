"""Dump a module as TVMScript that a person can read and `tvm.script.from_source` can parse back."""

from __future__ import annotations

import math
import re
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.whole_file import write_whole

# Larger constants would drown the text: 100 MB of weights are 130 MB of base64.
_INLINE_BYTES = 1024
_HEADER = """\
# `metadata` holds the small constants, by the number that the module gives them; larger ones are
# parameters const_0, const_1, ... A value keeps its name through all phases, unless a pass fuses it
# away; a PrimFunc's name is the symbol of its kernel in the library.
"""


def dump_module(mod: tvm.IRModule, path: str | Path) -> None:
    """Write `mod` to `path` as re-parsable TVMScript, all or nothing.

    Constants above 1 KiB appear as trailing parameters `const_0, const_1, ...` of the function
    that uses them, so the text stays readable and closed; smaller ones are kept by value, all in
    one line at the top.

    Raises:
        OSError: If the file cannot be written.
    """
    shown = tvm.IRModule(
        {
            var: lift_constants(func) if isinstance(func, relax.Function) else func
            for var, func in mod.functions.items()
        }
    )
    write_whole(_HEADER + _fold_metadata(shown.script(show_meta=True)), Path(path))


def dump_instructions(executable: relax.VMExecutable, path: str | Path) -> None:
    """Write the instructions of the virtual machine, one call a line, all or nothing.

    Raises:
        OSError: If the file cannot be written.
    """
    write_whole(executable.as_text(), Path(path))


def _fold_metadata(script: str) -> str:
    """Put the metadata, JSON of a line a number, on one line."""
    start, end = script.find('"""{'), script.find('}""")')
    if start < 0 or end < 0:
        return script
    # No string of JSON holds a newline, so that each stands between two tokens.
    return script[:start] + re.sub(r"\n\s*", "", script[start:end]) + script[end:]


def lift_constants(func: relax.Function) -> relax.Function:
    """Return `func` with each constant above 1 KiB turned into a trailing parameter."""
    lifted: dict[tvm.ir.GenericConst, relax.Var] = {}

    def lift(constant: tvm.ir.GenericConst) -> relax.Expr:
        if not isinstance(constant.value, tvm.runtime.Tensor):
            return constant
        shape = constant.value.shape
        size = math.prod(shape) * tvm.runtime.DataType(str(constant.value.dtype)).itemsize
        if size <= _INLINE_BYTES:
            return constant
        if constant not in lifted:
            lifted[constant] = relax.Var(f"const_{len(lifted)}", constant.ty)
        return lifted[constant]

    body = tvm_ffi.structural_map(func.body, (tvm.ir.GenericConst, lift))
    if not lifted:
        return func
    params = [*func.params, *lifted.values()]
    return relax.Function(params, body, func.ret_ty, func.is_pure, func.attrs)
