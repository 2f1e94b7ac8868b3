"""ONNX's test cases with their data, as the `onnx` package ships or generates them."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.loader as loader
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

# "real" in onnx's loader are the light models: the architectures of the model zoo of 2017 with
# generated weights, which the package ships.
SUITES = {
    "node": "node",
    "light": "real",
    "simple": "simple",
    "pytorch-converted": "pytorch-converted",
    "pytorch-operator": "pytorch-operator",
}


@dataclass(frozen=True)
class Case:
    """One test case; `key` is unique over all suites, and the case can be sent to a process."""

    key: str
    source: Any  # onnx's TestCase

    @property
    def suite(self) -> str:
        """Return the suite that the case belongs to."""
        return self.key.split("/")[0]

    @property
    def tolerances(self) -> tuple[float, float]:
        """Return the case's relative and absolute tolerance."""
        return self.source.rtol, self.source.atol


DataSet = tuple[list[Any], list[Any]]  # inputs, expected outputs


def load_cases(pattern: str = "", suites: tuple[str, ...] = tuple(SUITES)) -> list[Case]:
    """Return the cases whose key (`suite/name`) matches a regular expression, sorted by key.

    The node cases are computed by the `onnx` package on import, which takes some seconds.
    """
    found = []
    for suite in suites:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            tests = loader.load_model_tests(kind=SUITES[suite])
        found += [Case(f"{suite}/{test.name.removeprefix('test_')}", test) for test in tests]
    return sorted((c for c in found if re.search(pattern, c.key)), key=lambda case: case.key)


def read_case(case: Case) -> tuple[onnx.ModelProto, list[DataSet]]:
    """Return a case's model and its data sets as arrays (lists for sequences, None for absent)."""
    source = case.source
    if source.model is not None:
        pairs = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in source.data_sets]
        return source.model, pairs
    if source.url is not None:
        return _read_light(source)
    folder = Path(source.model_dir)
    model = onnx.load(folder / "model.onnx")
    return model, [_read_set(path, model) for path in sorted(folder.glob("test_data_set_*"))]


def _read_light(source: Any) -> tuple[onnx.ModelProto, list[DataSet]]:
    """Read a light model: onnx's runner makes its input, the output lies beside the model."""
    path = Path(loader.DATA_DIR) / "light" / Path(source.url).name
    model = onnx.load(path)
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(value, seed=0, name=source.model_name, random=False)
        for value in model.graph.input
        if value.name not in defaults
    ]
    outputs = [
        _read_value(path.with_name(f"{path.stem}_output_{place}.pb"), value.type)
        for place, value in enumerate(model.graph.output)
    ]
    return model, [(inputs, outputs)]


def _read_set(folder: Path, model: onnx.ModelProto) -> DataSet:
    sides = []
    for side, values in (("input", model.graph.input), ("output", model.graph.output)):
        count = len(list(folder.glob(f"{side}_*.pb")))
        sides.append([_read_value(folder / f"{side}_{n}.pb", values[n].type) for n in range(count)])
    return sides[0], sides[1]


def _read_value(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _arrays(items: Any) -> list[Any]:
    """Return a case's data as arrays; types that NumPy lacks are given as TensorProto."""
    return [
        numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
        for item in items
    ]
