"""Compare what a model declares of its outputs with what its nodes compute."""

from __future__ import annotations

import onnx

from frontends.dims import dim_name, is_static
from frontends.errors import InvalidModel
from frontends.onnx.value import Value


def contradiction(declared: onnx.ValueInfoProto, result: Value, file: str) -> str:
    """Return how the declared shape contradicts the computed one, "" if it does not.

    The computed shape is the one that holds, as in ONNX Runtime, which warns: files with shapes
    left over from another size are common. Sizes known only at run time contradict nothing.

    Raises:
        InvalidModel: The element type is another one: a reader of the output would take its bytes
            for something else.
    """
    kind = declared.type.tensor_type
    if not kind.elem_type or not declared.type.HasField("tensor_type") or result.is_unused:
        return ""
    wanted = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if wanted != result.dtype:
        raise InvalidModel(
            f"the output is declared as {wanted}, and computed as {result.dtype}",
            tensor=declared.name,
            file=file,
        )
    if not kind.HasField("shape"):
        return ""
    told = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    found = [dim_name(dim) for dim in result.shape]
    fits = len(told) == len(found) and all(
        not isinstance(size, int) or size < 0 or not is_static(dim) or size == dim
        for size, dim in zip(told, result.shape, strict=True)
    )
    return "" if fits else f"declared with shape {told}, computed with shape {found}, which holds"
