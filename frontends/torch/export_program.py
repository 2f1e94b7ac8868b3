"""From a module to a functional graph of core ATen operators."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from frontends.errors import InvalidModel
from frontends.size_bounds import split_bound

_ATEN = torch.ops.aten

# Operators outside the core set that stay whole: Relax has them whole, and the decomposed form
# would have to be recognized again (attention, norms, activations, matmul of any rank, resize).
KEPT_WHOLE = (
    _ATEN.linear.default,
    _ATEN.matmul.default,
    _ATEN.scaled_dot_product_attention.default,
    _ATEN.layer_norm.default,
    _ATEN.rms_norm.default,
    _ATEN.instance_norm.default,
    _ATEN.gelu.default,
    _ATEN.silu.default,
    _ATEN.hardswish.default,
    _ATEN.hardsigmoid.default,
    _ATEN.softplus.default,
    _ATEN.mish.default,
    _ATEN.adaptive_avg_pool1d.default,
    _ATEN.adaptive_avg_pool2d.default,
    _ATEN.roll.default,
    _ATEN.upsample_bilinear2d.vec,
    _ATEN.upsample_nearest2d.vec,
    _ATEN.upsample_bicubic2d.vec,
)


def export_core_aten(
    source: Any, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any
) -> ExportedProgram:
    """Export `source` and decompose it to core ATen operators plus `KEPT_WHOLE`.

    Raises:
        InvalidModel: `source` is neither a module nor an exported program, is in training mode,
            lacks example inputs, cannot be traced, or writes to its own buffers.
    """
    program = source if isinstance(source, ExportedProgram) else None
    if program is None:
        program = _export(source, example_inputs, dynamic_shapes)
    table = torch.export.default_decompositions()
    for operator in KEPT_WHOLE:
        table.pop(operator, None)
    program = program.run_decompositions(table)
    written = sorted(program.graph_signature.buffers_to_mutate.values())
    if written:
        raise InvalidModel(
            "the module writes to its own buffers, and a compiled model keeps no state: "
            + ", ".join(written),
            tensor=written[0],
        )
    return program


def _export(
    module: Any, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any
) -> ExportedProgram:
    if not isinstance(module, torch.nn.Module):
        raise InvalidModel(
            f"expected a torch.nn.Module or an ExportedProgram, got {type(module).__name__}"
        )
    training = [path or type(module).__name__ for path, m in module.named_modules() if m.training]
    if training:
        raise InvalidModel(
            f"{len(training)} module(s) are in training mode, first {training[0]!r}: "
            "call .eval() before compiling"
        )
    if example_inputs is None:
        raise InvalidModel("a torch.nn.Module needs example_inputs to be exported")
    try:
        return torch.export.export(
            module,
            tuple(example_inputs),
            dynamic_shapes=_named_dims(dynamic_shapes),
            prefer_deferred_runtime_asserts_over_guards=True,  # keeps more sizes symbolic
        )
    except Exception as error:  # torch.export lets errors of the traced code and its own through
        reason = str(error).strip().split("\n")[0]
        raise InvalidModel(
            f"torch.export cannot export {type(module).__name__}: {reason}"
        ) from error


def _named_dims(spec: Any) -> Any:
    """Replace every dimension given as a string by the `torch.export.Dim` of that name."""
    dims: dict[str, Any] = {}

    def replace(node: Any) -> Any:
        if isinstance(node, str):
            name, bound = split_bound(node)
            # No model is meant for empty inputs, and torch proves more about sizes from 1 on.
            return dims.setdefault(name, Dim(name, min=1, max=bound))
        if isinstance(node, dict):
            return {key: replace(value) for key, value in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(replace(value) for value in node)
        return node

    return replace(spec)
