"""Models compiled by TVM alone, so that the front door is tested without our pipeline."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from frontends.imported_model import TensorSpec
from relaxc.compatibility import installed_tvm_version, isa_features
from relaxc.compiled_model import CompiledModel
from relaxc.metadata import Metadata
from relaxc.report import Report
from relaxc.targets import target_dict
from tir_schedules.machine import host_target


def compile_with_tvm(
    build: object, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
) -> CompiledModel:
    """Compile `build(*vars) -> list of Relax expressions` with TVM's default pipeline."""
    import relaxc

    symbols: dict[str, tvm.tirx.Var] = {}

    def dim(size: int | str) -> object:
        if isinstance(size, int):
            return size
        return symbols.setdefault(size, tvm.tirx.Var(size, "int64"))

    params = [
        relax.Var(spec.name, relax.TensorType([dim(d) for d in spec.shape], spec.dtype))
        for spec in inputs
    ]
    block = relax.BlockBuilder()
    with block.function("main", params):
        results = [block.emit(value) for value in build(*params)]  # type: ignore[operator]
        block.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    target = host_target(2)
    metadata = Metadata(
        inputs=inputs,
        outputs=outputs,
        target=target_dict(target),
        cpu_features=isa_features(target),
        threads=2,
        tvm_version=installed_tvm_version(),
        relaxc_version=relaxc.__version__,
        report=Report(source="test"),
    )
    return CompiledModel(tvm.compile(block.get(), target=target), metadata)


@pytest.fixture(scope="session")
def pair_model() -> CompiledModel:
    """total, scaled = a + b, a * b over float32[batch, 4]."""
    specs = {name: TensorSpec(name, ("batch", 4), "float32") for name in "a b total scaled".split()}
    return compile_with_tvm(
        lambda a, b: [relax.op.add(a, b), relax.op.multiply(a, b)],
        (specs["a"], specs["b"]),
        (specs["total"], specs["scaled"]),
    )


@pytest.fixture(scope="session")
def square_model() -> CompiledModel:
    """y = x * x over float32[2, 3]."""
    return compile_with_tvm(
        lambda x: [relax.op.multiply(x, x)],
        (TensorSpec("x", (2, 3), "float32"),),
        (TensorSpec("y", (2, 3), "float32"),),
    )
