"""Check call arguments against a model's inputs and turn them into TVM tensors.

Everything is checked before anything runs: names, kinds, dtypes, ranks, and shapes, where a
symbolic dimension must have one size over all inputs. Arrays are passed without a copy when they
are contiguous and 64-byte aligned (the generated code uses aligned vector loads), else copied.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from frontends.imported_model import TensorSpec
from relaxc.errors import InvalidInput
from relaxc.size_expressions import size_of

_ALIGNMENT = 64  # bytes; tvm.runtime allocates with it and LLVM code generation assumes it


def order_arguments(
    specs: Sequence[TensorSpec],
    args: Sequence[Any],
    named: Mapping[str, Any],
    bound: Mapping[str, Any],
) -> list[Any]:
    """Return one value per input, in order; `bound` are those of inputs that are not given.

    Raises:
        InvalidInput: If there are too many values, or one is unknown, missing or given twice.
    """
    names = [spec.name for spec in specs]
    if len(args) > len(names):
        raise InvalidInput(
            f"the model takes {len(names)} inputs ({', '.join(names)}), got {len(args)}"
        )
    values = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise InvalidInput(f"no input is called {name!r}; the inputs are: {known}", tensor=name)
        if name in values:
            raise InvalidInput(f"input {name!r} is given by position and by name", tensor=name)
        values[name] = value
    missing = [name for name in names if name not in values and name not in bound]
    if missing:
        raise InvalidInput(f"missing input: {', '.join(missing)}", tensor=missing[0])
    return [values[name] if name in values else bound[name] for name in names]


def kind_of(value: Any) -> str:
    """Return "numpy", "torch" or "dlpack".

    Raises:
        InvalidInput: If the value is no array of any kind, or a tensor whose elements lie in memory
            in another way than by strides, such as a sparse one.
    """
    if isinstance(value, np.ndarray | np.generic):
        return "numpy"
    # A torch tensor can only exist where torch is imported; importing it here would cost seconds.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise InvalidInput(
                f"a tensor of layout {value.layout}; a model takes dense ones: see to_dense()"
            )
        return "torch"
    if hasattr(value, "__dlpack__"):
        return "dlpack"
    raise InvalidInput(
        f"expected a NumPy array, a torch tensor or anything with DLPack, got "
        f"{type(value).__name__}"
    )


def check_input(spec: TensorSpec, value: Any, sizes: dict[str, tuple[int, str]]) -> None:
    """Check one value's dtype, rank and shape.

    Args:
        spec: What the model expects.
        value: An array of any supported kind.
        sizes: Size of each symbolic dimension met so far and the input it came from; extended.

    Raises:
        InvalidInput: Naming the input, what it got and what it expected.
    """
    dtype, shape = _dtype_name(value), tuple(int(d) for d in value.shape)

    def fail(what: str) -> InvalidInput:
        expected = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
        got = f"{dtype}[{', '.join(map(str, shape))}]"
        return InvalidInput(f"input {spec.name!r}: {what}: expected {expected}, got {got}")

    if getattr(value, "is_meta", False):
        raise fail("a tensor on the meta device has no elements")
    if dtype != spec.dtype:
        raise fail("wrong dtype")
    if len(shape) != len(spec.shape):
        raise fail("wrong rank")
    for size, dim in zip(shape, spec.shape, strict=True):
        if isinstance(dim, int):
            if size != dim:
                raise fail("wrong shape")
        elif dim.isidentifier():
            first, owner = sizes.setdefault(dim, (size, spec.name))
            if first != size:
                raise fail(f"wrong shape ({dim} is {first} in {owner!r})")


def computed_axes(spec: TensorSpec) -> list[tuple[int, str]]:
    """Return the axes of an input whose sizes are expressions, and these."""
    named = ((axis, dim) for axis, dim in enumerate(spec.shape) if isinstance(dim, str))
    return [(axis, dim) for axis, dim in named if not dim.isidentifier()]


def check_computed(
    specs: Sequence[TensorSpec], values: Sequence[Any], sizes: Mapping[str, int]
) -> None:
    """Check the sizes that the model computes from those of other inputs, such as `2 * n`.

    Args:
        specs: What the model expects.
        values: As many arguments, or what has no shape.
        sizes: Of the symbols, by name.

    Raises:
        InvalidInput: Naming the input, the expression and what it is in this call.
    """
    for spec, value in zip(specs, values, strict=True):
        for axis, dim in computed_axes(spec) if hasattr(value, "shape") else ():
            size, wanted = int(value.shape[axis]), size_of(dim, sizes)
            if wanted is not None and size != wanted:
                raise InvalidInput(
                    f"input {spec.name!r}: axis {axis} has size {size}, and must have {dim}, "
                    f"which is {wanted} in this call",
                    tensor=spec.name,
                )


def check_ranges(
    ranges: Mapping[str, tuple[int, int | None]], sizes: Mapping[str, tuple[int, str]]
) -> None:
    """Check the sizes of a call against the bounds that were promised for them.

    Args:
        ranges: The least and the greatest size of symbolic dimensions, by name; None: no bound.
        sizes: What `check_input` has found.

    Raises:
        InvalidInput: Naming the input, the size and its bound.
    """
    for name, (least, most) in ranges.items():
        size, owner = sizes.get(name, (least, ""))
        if size < least or (most is not None and size > most):
            side = f"below its lower bound of {least}"
            if size >= least:
                side = f"above its upper bound of {most}"
            raise InvalidInput(f"input {owner!r}: the size {name} is {size}, {side}", tensor=owner)


def to_tensor(value: Any, kind: str, device: Any) -> Any:
    """Return `value` as a TVM tensor on `device`: contiguous, aligned, without a copy if it is."""
    if kind == "torch":
        value = canonical(value.detach().resolve_conj().resolve_neg().contiguous())
        if value.device.type == "cpu" and device.dlpack_device_type() == 1:
            if value.data_ptr() % _ALIGNMENT:
                value = value.clone()
            if value.data_ptr() % _ALIGNMENT == 0:
                return tvm.runtime.from_dlpack(value)
            return tvm.runtime.tensor(value.numpy())
        return _move(tvm.runtime.from_dlpack(value), device)
    if kind == "dlpack" and not isinstance(value, tvm.runtime.Tensor):
        tensor = _from_dlpack_or_none(value)
        if tensor is None:
            return to_tensor(np.from_dlpack(value), "numpy", device)
        return _move(tensor, device)
    if kind == "dlpack":
        # A TVM tensor may itself wrap a foreign view.
        if _is_compact(value) and value.data_ptr() % _ALIGNMENT == 0:
            return _move(value, device)
        value = value.numpy()
    array = canonical(np.asarray(value, order="C"))
    pointer = array.__array_interface__["data"][0]
    if device.dlpack_device_type() == 1 and pointer % _ALIGNMENT == 0 and array.flags.writeable:
        tensor = _from_dlpack_or_none(array)
        if tensor is not None:
            return tensor
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape), device)


def from_tensor(tensor: Any, kind: str) -> Any:
    """Return a TVM tensor as an array of `kind`, sharing memory where DLPack allows it."""
    if kind == "numpy":
        if tensor.device.dlpack_device_type() != 1:
            return tensor.numpy()
        try:
            return np.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError):  # a dtype that NumPy's DLPack does not know
            return tensor.numpy()
    if kind == "torch":
        return sys.modules["torch"].from_dlpack(tensor)
    return tensor


def _from_dlpack_or_none(value: Any) -> Any:
    try:
        tensor = tvm.runtime.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # unaligned, strided, or a dtype not exported
        return None
    return tensor if _is_compact(tensor) else None


def canonical(array: Any) -> Any:
    """Return a contiguous array with the strides its shape implies, without a copy.

    NumPy and torch call an array contiguous whatever the stride of an axis of one element, or of
    any axis of an empty array; the generated code compares every stride.
    """
    if 0 in array.shape and kind_of(array) == "torch":
        return array.as_strided(array.shape, _implied_strides(array.shape))
    return array.reshape(-1).reshape(array.shape)


def _implied_strides(shape: Sequence[int]) -> list[int]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


def _is_compact(tensor: Any) -> bool:
    """Tell whether a TVM tensor has exactly the strides its shape implies."""
    return list(tensor.strides) == _implied_strides(tensor.shape)


def _move(tensor: Any, device: Any) -> Any:
    return tensor if tensor.device == device else tensor.copyto(device)


@functools.cache
def _name_of_dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_name(value: Any) -> str:
    # NumPy takes 6 us to spell a dtype out, a fifth of what a whole call may cost.
    return _name_of_dtype(value.dtype)
