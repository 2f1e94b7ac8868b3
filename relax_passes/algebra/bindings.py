"""The bindings a rule may look at: definitions in scope, readers of each variable, constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relax_passes.constant_values import array_of


class Bindings:
    """Definitions of the block at hand, and how often each variable of the function is read."""

    def __init__(self, readers: Counter[relax.Var]) -> None:
        self.definitions: dict[relax.Var, relax.Expr] = {}
        self.inner = False  # whether the block at hand is a dataflow block
        self.readers = readers
        self._uniform: dict[relax.Expr, float | None] = {}
        self._parts: dict[tvm.ir.Call, tuple[str, list[relax.Expr]]] = {}

    def definition(self, value: relax.Expr) -> relax.Expr:
        """Return what a variable of this block stands for, or the value itself."""
        return self.definitions.get(value, value) if isinstance(value, relax.Var) else value

    def call_of(self, value: relax.Expr) -> tvm.ir.Call | None:
        """Return the operator call that a value is or stands for."""
        call = self.definition(value)
        return call if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op) else None

    def name_of(self, call: tvm.ir.Call) -> str:
        """Return the operator's name without its prefix."""
        return self._parts_of(call)[0]

    def args_of(self, call: tvm.ir.Call) -> list[relax.Expr]:
        """Return the arguments of a call."""
        return self._parts_of(call)[1]

    def kind_of(self, value: relax.Expr) -> str:
        """Return "constant", the operator that makes a value, or ""."""
        if self.is_constant(value):
            return "constant"
        call = self.call_of(value)
        return "" if call is None else self.name_of(call)

    def _parts_of(self, call: tvm.ir.Call) -> tuple[str, list[relax.Expr]]:
        known = self._parts.get(call)
        if known is None:
            name = str(call.op.name).removeprefix("relax.")
            known = self._parts[call] = (name, list(call.args))
        return known

    @staticmethod
    def is_tensor(value: relax.Expr) -> bool:
        """Return whether a value is a tensor."""
        return isinstance(getattr(value, "ty", None), relax.TensorType)

    @staticmethod
    def is_constant(value: relax.Expr) -> bool:
        """Return whether a value is a constant tensor."""
        return isinstance(value, tvm.ir.GenericConst) and isinstance(
            value.value, tvm.runtime.Tensor
        )

    def uniform(self, constant: tvm.ir.GenericConst, *, single: bool = False) -> float | None:
        """Return the number that all elements of a constant are, None if they differ."""
        if single and any(int(d) != 1 for d in constant.value.shape):
            return None
        if constant not in self._uniform:
            self._uniform[constant] = _uniform(array_of(constant))
        return self._uniform[constant]

    def same(self, a: relax.Expr, b: relax.Expr) -> bool:
        """Return whether two values are the same variable or equal constants."""
        if a.same_as(b):
            return True
        if not self.is_constant(a) or not self.is_constant(b):
            return False
        x, y = array_of(a), array_of(b)
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()

    def retain(self, value: relax.Expr) -> None:
        """Count the reads that a new value does."""
        for var in operands(value):
            self.readers[var] += 1

    def release(self, value: relax.Expr) -> None:
        """Take back the reads of a value that is gone, and of what nobody reads any more."""
        pending = [value]
        while pending:
            for var in operands(pending.pop()):
                self.readers[var] -= 1
                if self.readers[var] == 0 and var in self.definitions:
                    pending.append(self.definitions[var])


def operands(value: relax.Expr) -> Iterator[relax.Var]:
    """Yield each variable that a bound value reads, as often as it does."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, relax.Var):
            yield item
        elif isinstance(item, tvm.ir.Call):
            pending.extend(item.args)
        elif isinstance(item, relax.Tuple):
            pending.extend(item.fields)
        elif isinstance(item, relax.TupleGetItem):
            pending.append(item.tuple_value)


def same_type(a: relax.Type, b: relax.Type) -> bool:
    """Return whether two types are provably the same, symbolic sizes included."""
    return bool(tvm_ffi.structural_equal(a, b))


def _uniform(array: np.ndarray) -> float | None:
    if array.size == 0 or array.dtype.kind not in "fiub":
        return None
    flat = array.reshape(-1)
    first = flat[0]
    # Large weights differ within their first elements: look there before at all of them.
    for part in (flat[:64], flat):
        if not np.all(part == first):
            return None
    if array.dtype.kind == "f" and np.any(np.signbit(flat) != np.signbit(first)):
        return None
    number = float(first)
    return number if array.dtype.kind == "f" or int(number) == int(first) else None
