"""Name the symbolic dimensions of a model's inputs and apply the user's overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from tvm import tirx

from frontends.dims import Dim, DimArithmetic
from frontends.errors import InvalidInput, InvalidModel, RelaxcError
from frontends.size_bounds import split_bound

# What may be said of a dimension: its size, its name (with an upper bound: "batch<=32"), the sizes
# of its buckets (which make it symbolic here), or nothing.
Wanted = int | str | Sequence[int] | None
DynamicShapes = Mapping[str, Mapping[int, Wanted] | Sequence[Wanted]]

# Exporters write these where they mean "unknown": two of them need not be equal.
_MEANINGLESS = {"", "?", "None", "none", "-1", "unk", "unknown"}

# Of a tensor: more would overflow the 64-bit arithmetic on bytes and offsets.
MOST_ELEMENTS = 1 << 48


def sanitize(name: str) -> str:
    """Return `name` as an identifier."""
    cleaned = re.sub(r"\W+", "_", name).strip("_") or "v"
    return f"v{cleaned}" if cleaned[0].isdigit() else cleaned


class InputShapes:
    """Gives every input its shape; one `dim_param` is one symbol, or one size, everywhere."""

    def __init__(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        dynamic_shapes: DynamicShapes | None,
        arithmetic: DimArithmetic,
        file: str,
    ) -> None:
        self._arithmetic, self._file = arithmetic, file
        self._symbols: dict[str, tirx.Var] = {}  # by identifier
        self._identifiers: dict[str, str] = {}  # by the name that the file or the user gives
        self._taken: set[str] = set()
        self._overrides: dict[str, dict[int, int | str]] = {}
        self._renamed: dict[str, int | str] = {}
        self.upper_bounds: dict[str, int] = {}  # by symbol, where the user promises one
        self._fixed: list[str] = []  # sizes the user gives where the file has none or others
        by_name = {value.name: value for value in inputs}
        for name, wanted in (dynamic_shapes or {}).items():
            if name not in by_name:
                raise InvalidInput(
                    f"dynamic_shapes names no input of the model (inputs: {', '.join(by_name)})",
                    tensor=name,
                    file=file,
                )
            self._add_override(by_name[name], wanted)

    def _add_override(self, value: onnx.ValueInfoProto, wanted: Any) -> None:
        declared = value.type.tensor_type.shape.dim
        if not isinstance(wanted, Mapping) and len(wanted) != len(declared):
            raise InvalidInput(
                f"dynamic_shapes: {len(wanted)} dimensions are given, the input has "
                f"{len(declared)}",
                tensor=value.name,
                file=self._file,
            )
        pairs = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted)
        own = self._overrides.setdefault(value.name, {})
        for axis, dim in pairs:
            if dim is None:
                continue
            if not isinstance(axis, int) or isinstance(axis, bool):
                raise InvalidInput(
                    f"dynamic_shapes: an axis is an int, not the {type(axis).__name__} {axis!r}",
                    tensor=value.name,
                    file=self._file,
                )
            if not -len(declared) <= axis < len(declared):
                raise InvalidInput(
                    f"dynamic_shapes: axis {axis} is out of range for rank {len(declared)}",
                    tensor=value.name,
                    file=self._file,
                )
            axis %= len(declared)
            buckets = isinstance(dim, (list, tuple))
            if buckets:
                # Where the file gives no name, the symbol takes the input's.
                named = declared[axis].dim_param not in _MEANINGLESS
                dim = declared[axis].dim_param if named else f"{value.name}_dim{axis}"
            wrong = isinstance(dim, bool) or not isinstance(dim, (int, str))
            if wrong or dim == "" or (isinstance(dim, int) and dim < 0):
                raise InvalidInput(
                    f"dynamic_shapes: a dimension is a size or a name, not {dim!r}",
                    tensor=value.name,
                    file=self._file,
                )
            if isinstance(dim, str) and not buckets:  # the file's names promise no bounds
                dim = self._take_bound(dim, value.name)
            own[axis] = dim
            param = declared[axis].dim_param
            if param not in _MEANINGLESS:
                other = self._renamed.setdefault(param, dim)
                if other != dim:
                    raise InvalidInput(
                        f"dynamic_shapes: {param!r} is both {other!r} and {dim!r}",
                        tensor=value.name,
                        file=self._file,
                    )

    def _take_bound(self, text: str, tensor: str) -> str:
        """Note the upper bound in a dimension's name, and return the name alone."""
        try:
            name, bound = split_bound(text)
        except ValueError as fault:
            raise InvalidInput(f"dynamic_shapes: {fault}", tensor=tensor, file=self._file) from None
        if bound is not None:
            known = self.upper_bounds.setdefault(self._identifier(name), bound)
            if known != bound:
                raise InvalidInput(
                    f"dynamic_shapes: {name!r} is at most {known} and at most {bound}",
                    tensor=tensor,
                    file=self._file,
                )
        return name

    def shape_of(self, value: onnx.ValueInfoProto) -> list[Dim]:
        """Return the shape of one input.

        Raises:
            InvalidModel: the model does not even say how many dimensions the input has.
        """
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise InvalidModel("the input's rank is unknown", tensor=value.name, file=self._file)
        overrides = self._overrides.get(value.name, {})
        renamed = [self._renamed.get(dim.dim_param) for dim in tensor.shape.dim]
        shape: list[Dim] = []
        for axis, dim in enumerate(tensor.shape.dim):
            wanted: int | str | None = overrides.get(axis)
            if wanted is None and dim.dim_param not in _MEANINGLESS:
                wanted = self._renamed.get(dim.dim_param, dim.dim_param)
            if wanted is None and dim.HasField("dim_value"):
                if dim.dim_value < -1:
                    raise InvalidModel(
                        f"dimension {axis} is negative: {dim.dim_value}",
                        tensor=value.name,
                        file=self._file,
                    )
                # Exporters write -1 for "unknown".
                wanted = dim.dim_value if dim.dim_value >= 0 else None
            if wanted is None:
                wanted = f"{value.name}_dim{axis}"
            if isinstance(wanted, int) and wanted != dim.dim_value:
                told = dim.dim_value if dim.dim_value > 0 else repr(dim.dim_param or "?")
                self._fixed.append(
                    f"dimension {axis} of {value.name!r} is given as {wanted} ({told} in the file)"
                )
            shape.append(wanted if isinstance(wanted, int) else self.symbol(wanted))
        if math.prod(max(size, 1) for size in shape if isinstance(size, int)) > MOST_ELEMENTS:
            given = any(isinstance(wanted, int) for wanted in [*overrides.values(), *renamed])
            raise (InvalidInput if given else InvalidModel)(
                f"no memory holds the shape {shape}", tensor=value.name, file=self._file
            )
        return shape

    def blame(self, error: RelaxcError, import_as_is: Callable[[], object]) -> RelaxcError:
        """Return the error to raise for one found while importing: the user's, or the file's.

        Sizes other than the file's are allowed; if the model contradicts itself with them alone,
        they are wrong.

        Args:
            error: What was found.
            import_as_is: Imports the model without what the user says of its sizes.
        """
        if not self._fixed or not isinstance(error, InvalidModel):
            return error
        try:
            import_as_is()
        except InvalidModel:
            return error
        except RelaxcError:  # it needs what the user says: both may be wrong
            pass
        return InvalidInput(
            f"dynamic_shapes: {'; '.join(self._fixed)}; with that, {error.message}",
            node=error.node,
            tensor=error.tensor,
            file=error.file,
        )

    def symbol(self, name: str) -> tirx.Var:
        """Return the symbol of this name, the same one each time."""
        name = self._identifier(name)
        if name not in self._symbols:
            self._symbols[name] = tirx.Var(name, "int64")
            self._arithmetic.declare(self._symbols[name])
        return self._symbols[name]

    def _identifier(self, name: str) -> str:
        """Return the identifier of a name; `a-b` and `a_b`, of two sizes, have two."""
        if name not in self._identifiers:
            plain = sanitize(name)
            identifier = self._numbered(plain, 2) if plain in self._taken else plain
            self._identifiers[name] = identifier
            self._taken.add(identifier)
        return self._identifiers[name]

    def known(self) -> tuple[tirx.Var, ...]:
        """Return all symbols there are."""
        return tuple(self._symbols.values())

    def fresh(self, hint: str) -> tirx.Var:
        """Return a symbol of a name that nothing else has."""
        return self.symbol(self._numbered(sanitize(hint), 0))

    def _numbered(self, plain: str, number: int) -> str:
        """Return the first identifier that is not taken, counting from `number`."""
        while f"{plain}_{number}" in self._taken:
            number += 1
        return f"{plain}_{number}"
