"""Indices read from int32 tensors become int64 where places are, before anything is inlined."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import numpy_helper, parser
from tvm import relax, te, tirx
from tvm.ir import TensorLoad

import relaxc
from relax_passes.pipeline import default_pipeline
from relax_passes.widen_indices import widen_indices
from tests.frontends.onnx.run_model import run_reference
from tests.relax_passes.pass_checks import check, module, normal

R = relax.op


def gathered(dtype: str) -> tvm.IRModule:
    """Return x[i[k], :] as a kernel, its indices of `dtype`."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        indices = relax.const(tvm.runtime.tensor(np.array([2, 0, 3], dtype)))

        def compute(data: te.Tensor, at: te.Tensor) -> te.Tensor:
            return te.compute((3, 6), lambda k, j: data(at(k), j), name="gathered")

        return bb.emit_te(compute, x, indices)

    return module((4, 6), build)


def places(mod: tvm.IRModule) -> set[str]:
    """Return the dtypes of all places that kernels read at."""
    found: set[str] = set()

    def look(load: TensorLoad) -> None:
        found.update(str(place.ty.dtype) for place in load.indices)

    for func in mod.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func.body, (TensorLoad, look))
    return found


def test_narrow_indices_are_widened() -> None:
    mod = gathered("int32")
    assert places(mod) == {"int32", "int64"}
    assert places(check(widen_indices, mod, normal(4, 6))) == {"int64"}


def test_wide_indices_stay() -> None:
    check(widen_indices, gathered("int64"), fires=False)


def test_functions_of_narrow_sizes_stay() -> None:
    i, j = tirx.Var("i", "int32"), tirx.IntImm("int32", 8)
    x, y = (tirx.decl_buffer((j,), "float32", name=name) for name in "xy")
    body = tirx.For(i, 0, 8, tirx.ForKind.SERIAL, tirx.BufferStore(y, tirx.BufferLoad(x, [i]), [i]))
    mod = tvm.IRModule({"f": tirx.PrimFunc([x, y], body)})
    check(widen_indices, mod, fires=False)


# What reads the padded tensor at places that it computes or reads; the names are initializers.
READERS = [
    'Resize<mode="nearest">({p},,scales)',
    'Resize<mode="linear">({p},,scales)',
    "GridSample({p},grid)",
    'GridSample<mode="nearest",padding_mode="reflection">({p},grid)',
    "Gather<axis=2>({p},rows)",
    "GatherElements<axis=3>({p},columns)",
    "GatherND({p},points)",
    "Slice({p},from,to,axes,steps)",
    "Slice({p},back,zero,axes,down)",
    'Pad<mode="reflect">({p},pads)',
    "DepthToSpace<blocksize=2>({p})",
    "ReverseSequence<batch_axis=0,time_axis=1>({p},lengths)",
]
RNG = np.random.default_rng(0)
GIVEN = {
    "pads": np.array([0, 0, 1, 2, 0, 0, 3, 1]),
    "scales": np.array([1, 1, 1.7, 2], "float32"),
    "grid": RNG.uniform(-1, 1, (2, 3, 3, 2)).astype("float32"),
    "rows": np.array([1, 0, 3], "int32"),
    "columns": RNG.integers(0, 6, (2, 4, 9, 3)).astype("int32"),
    "points": np.array([[0, 1, 2], [1, 0, -1]]),
    "from": np.array([0, 1]), "to": np.array([99, 99]), "axes": np.array([2, 3]),
    "steps": np.array([2, 3]), "back": np.array([-1, -1]), "zero": np.array([-99, -99]),
    "down": np.array([-1, -2]), "lengths": np.array([2, 4]),
}  # fmt: skip


def padded_and_read(mode: str, readers: list[str], batch: str = "2") -> onnx.ModelProto:
    results = [f"y{number}" for number in range(len(readers))]
    lines = [f'p = Pad<mode="{mode}">(x, pads)']
    lines += [f"{y} = {text.format(p='p')}" for y, text in zip(results, readers, strict=True)]
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[{batch},4,5,6] x) => '
        f"({', '.join(results)}) {{ {' '.join(lines)} }}"
    )
    read = " ".join(lines)
    for name, array in GIVEN.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_every_mode_of_padding_before_every_reader(mode: str) -> None:
    model = padded_and_read(mode, READERS, "n" if mode == "edge" else "2")
    x = RNG.standard_normal((2, 4, 5, 6)).astype("float32")
    results = relaxc.compile(model, threads=1, progress=False)(x)
    wanted = run_reference(model, {"x": x})
    for reader, got, want in zip(READERS, results, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=reader)


def test_without_the_pass_they_do_not_compile() -> None:
    """If this fails, TVM converts the indices that it inlines, and the pass can go."""
    model = padded_and_read("reflect", READERS[:1])
    passes = default_pipeline().without("widen_indices")
    with pytest.raises(relaxc.CompileError, match="int32 vs. int64"):
        relaxc.compile(model, passes=passes, threads=1, progress=False)
