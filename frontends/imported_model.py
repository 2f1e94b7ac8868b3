"""What every frontend returns: a Relax graph plus the names and types its user knows it by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

Dim = int | str  # a size, or the name of a symbolic dimension


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of one input or output; symbolic dimensions appear by name.

    `is_parameter` marks an input that is a parameter or a buffer of the module.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    is_parameter: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; `from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> TensorSpec:
        """Rebuild a spec from `to_json`'s dict."""
        parameter = bool(data.get("is_parameter", False))
        return TensorSpec(data["name"], tuple(data["shape"]), data["dtype"], parameter)


@dataclass(frozen=True)
class ImportedModel:
    """A model as a Relax graph.

    `module` holds one dataflow function `main` whose parameters are exactly `inputs`, in order,
    whose weights are constants, and which returns one tensor for one output and a tuple for
    several. `notes` are pairs of a tensor's name and what was declined of
    it: what the source says of it wrongly, or a branch that is not compiled.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: str
    notes: tuple[tuple[str, str], ...] = ()
