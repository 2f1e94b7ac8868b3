"""What a file of a compiled model says of it, beside its code and weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from frontends.imported_model import TensorSpec
from relaxc.buckets import Buckets
from relaxc.preparation import Preparation
from relaxc.report import Report
from relaxc.stored_weights import WeightTable


@dataclass(frozen=True)
class Metadata:
    """What the trailer holds (`relaxc.artifact`).

    `target` is TVM's target dict, `cpu_features` are LLVM's names of the instruction sets the
    code may use (empty for other targets), `tvm_version` and `relaxc_version` wrote the file,
    `buckets` are the sizes that it holds versions of the model for, `ranges` the least and the
    greatest size (None: no bound) that were promised for symbolic dimensions, by name,
    `preparation` tells which inputs are prepared by a function of their own, `states` which inputs
    the model holds itself: pairs of an input and the output that is its next value, by number,
    `weights` what lies beside the library.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    target: dict[str, Any]
    cpu_features: tuple[str, ...]
    threads: int
    tvm_version: str
    relaxc_version: str
    report: Report
    buckets: Buckets = Buckets()
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    preparation: Preparation | None = None
    states: tuple[tuple[int, int], ...] = ()
    weights: WeightTable = WeightTable()

    def to_bytes(self) -> bytes:
        """Return the metadata as UTF-8 JSON."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["inputs"] = [spec.to_json() for spec in self.inputs]
        data["outputs"] = [spec.to_json() for spec in self.outputs]
        data["report"] = self.report.to_dict()
        data["buckets"] = self.buckets.to_json()
        data["weights"] = self.weights.to_json()
        data["preparation"] = self.preparation and dataclasses.asdict(self.preparation)
        return json.dumps(data).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Metadata:
        """Rebuild the metadata from `to_bytes`' JSON.

        Raises:
            ValueError, KeyError, TypeError: If it is not what `to_bytes` writes.
        """
        fields = json.loads(data)
        fields["inputs"] = tuple(TensorSpec.from_json(spec) for spec in fields["inputs"])
        fields["outputs"] = tuple(TensorSpec.from_json(spec) for spec in fields["outputs"])
        fields["cpu_features"] = tuple(fields["cpu_features"])
        fields["report"] = Report.from_dict(fields["report"])
        fields["buckets"] = Buckets.from_json(fields["buckets"])
        ranges = fields.get("ranges", {})  # older files have none
        fields["ranges"] = {name: (least, most) for name, (least, most) in ranges.items()}
        fields["preparation"] = Preparation.from_json(fields.get("preparation"))
        fields["weights"] = WeightTable.from_json(fields["weights"])
        fields["states"] = tuple((given, result) for given, result in fields.get("states", []))
        return Metadata(**fields)
