"""A dump parses back to the module it shows, whatever the size of its weights."""

from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R

from relax_passes.dump_module import dump_module, lift_constants


def _add_twice(rows: int) -> tvm.IRModule:
    weight = relax.const(np.arange(rows * 64, dtype="float32").reshape(rows, 64))
    x = relax.Var("x", R.Tensor((rows, 64), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.add(x, weight))
            out = bb.emit_output(relax.op.multiply(y, weight))
        bb.emit_func_output(out)
    return bb.get()


def test_large_constants_become_one_parameter_each(tmp_path: Path) -> None:
    mod = _add_twice(rows=64)
    dump_module(mod, tmp_path / "m.py")
    parsed = tvm.script.from_source((tmp_path / "m.py").read_text())
    assert len(parsed["main"].params) == 2
    tvm.ir.assert_structural_equal(parsed["main"], lift_constants(mod["main"]), map_free_vars=True)


def test_small_constants_keep_their_values(tmp_path: Path) -> None:
    mod = _add_twice(rows=2)
    dump_module(mod, tmp_path / "m.py")
    parsed = tvm.script.from_source((tmp_path / "m.py").read_text())
    tvm.ir.assert_structural_equal(parsed, mod, map_free_vars=True)


def test_constants_take_one_line_above_the_module(tmp_path: Path) -> None:
    dump_module(_add_twice(rows=2), tmp_path / "m.py")
    lines = (tmp_path / "m.py").read_text().splitlines()
    code = [line for line in lines if line and not line.startswith("#")]
    assert code[0].startswith("metadata = ") and code[1] == "@I.ir_module"


def test_dump_leaves_no_temporary_file(tmp_path: Path) -> None:
    dump_module(_add_twice(rows=2), tmp_path / "deep" / "m.py")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["m.py"]
