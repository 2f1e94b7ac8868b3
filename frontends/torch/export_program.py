"""From a module to a functional graph of core ATen operators."""

from __future__ import annotations

import contextlib
import itertools
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._export import utils as export_utils
from torch.export import Dim, ExportedProgram

from frontends.errors import InvalidModel
from frontends.size_bounds import split_bound
from frontends.torch.decompositions import OWN_DECOMPOSITIONS
from frontends.torch.export_stacks import is_users, kept_stacks

_ATEN = torch.ops.aten
_LIST_COMPOSITES = export_utils._materialize_cpp_cia_ops

# Operators outside the core set that stay whole: Relax has them whole, and the decomposed form
# would have to be recognized again (attention, norms, activations, matmul of any rank, resize).
KEPT_WHOLE = tuple(
    getattr(getattr(_ATEN, name), overload)
    for name, overload in (
        ("inverse", "default"),
        ("linalg_cholesky", "default"),  # these two and the inverses fail where they have to
        ("linalg_inv", "default"),
        ("linalg_solve", "default"),
        ("linear", "default"),
        ("matmul", "default"),
        ("scaled_dot_product_attention", "default"),
        ("layer_norm", "default"),
        ("rms_norm", "default"),
        ("instance_norm", "default"),
        ("gelu", "default"),
        ("silu", "default"),
        ("hardswish", "default"),
        ("hardsigmoid", "default"),
        ("softplus", "default"),
        ("mish", "default"),
        ("bernoulli", "default"),  # checks its chances
        ("roll", "default"),
        ("col2im", "default"),
        ("masked_fill", "Scalar"),
        ("reflection_pad1d", "default"),
        ("reflection_pad2d", "default"),
        ("reflection_pad3d", "default"),
        ("replication_pad2d", "default"),
        ("replication_pad3d", "default"),
        ("adaptive_avg_pool1d", "default"),
        ("adaptive_avg_pool2d", "default"),
        ("lstm", "input"),
        ("gru", "input"),
        ("rnn_tanh", "input"),
        ("rnn_relu", "input"),
        ("upsample_linear1d", "vec"),
        ("upsample_bilinear2d", "vec"),
        ("upsample_trilinear3d", "vec"),
        ("upsample_nearest1d", "vec"),
        ("upsample_nearest2d", "vec"),
        ("upsample_nearest3d", "vec"),
        ("_upsample_nearest_exact1d", "vec"),
        ("_upsample_nearest_exact2d", "vec"),
        ("_upsample_nearest_exact3d", "vec"),
        ("upsample_bicubic2d", "vec"),
        ("_upsample_bilinear2d_aa", "vec"),
        ("_upsample_bicubic2d_aa", "vec"),
    )
)


def export_core_aten(source: Any, example_inputs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """Export `source` and decompose it to core ATen operators plus `KEPT_WHOLE`.

    Its conditions on sizes still have their stacks: `SizeGuards` reads them.

    Raises:
        InvalidModel: `source` is neither a module nor an exported program, is in training mode,
            lacks example inputs, or cannot be traced.
    """
    if not isinstance(source, ExportedProgram):
        _check_module(source, example_inputs)
    name = type(source).__name__
    try:
        # Without gradients: torch traces operators that hold graphs in other ways for those.
        with torch.no_grad(), _without_torchs_own_warnings(), kept_stacks():
            program = source
            if not isinstance(source, ExportedProgram):
                args, named = _split(example_inputs)
                program = torch.export.export(
                    source,
                    args,
                    named,
                    dynamic_shapes=_named_dims(dynamic_shapes),
                    prefer_deferred_runtime_asserts_over_guards=True,  # keeps sizes symbolic
                )
            table = decompositions()
            with _composites_listed_once():
                return program.run_decompositions(table)
    except Exception as error:  # torch.export lets errors of the traced code and its own through
        raise InvalidModel(f"torch.export cannot export {name}: {_reason(error)}") from error


@contextlib.contextmanager
def _without_torchs_own_warnings() -> Iterator[None]:
    """Leave out what torch says of its own code: it copies a deprecated class of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
        yield


def decompositions() -> dict[Any, Any]:
    """Return torch's decompositions to the core ATen set and our own, but none of `KEPT_WHOLE`."""
    table = torch.export.default_decompositions()
    table.update(OWN_DECOMPOSITIONS)
    for kept in KEPT_WHOLE:
        table.pop(kept, None)
    with _composites_listed_once():
        return dict(table)


@contextlib.contextmanager
def _composites_listed_once() -> Iterator[None]:
    """Have torch look up its composite operators once, not anew for each of some 25 namespaces.

    It does that twice in an export, which is 0.2 s of the 0.5 s that a small module takes.
    """
    _LIST_COMPOSITES()
    export_utils._materialize_cpp_cia_ops = lambda: None
    try:
        yield
    finally:
        export_utils._materialize_cpp_cia_ops = _LIST_COMPOSITES


@contextlib.contextmanager
def keep_composites_whole() -> Iterator[None]:
    """Have tracing leave the operators of `KEPT_WHOLE` whole that torch composes of others.

    torch takes such an operator apart before a table of decompositions is asked, but while
    `torch.export` decomposes; this is what it does then. They have no gradients meanwhile.
    """
    from torch.export.exported_program import _override_composite_implicit_decomp

    composites = {
        kept: lambda *args, **kwargs: NotImplemented
        for kept in KEPT_WHOLE
        if torch._C._dispatch_has_kernel_for_dispatch_key(kept.name(), "CompositeImplicitAutograd")
    }
    with _override_composite_implicit_decomp(composites):
        yield


def _check_module(module: Any, example_inputs: Any) -> None:
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
    if not isinstance(example_inputs, tuple | list | Mapping):
        raise InvalidModel(
            "example_inputs are a tuple of the arguments, or a dict of them by name, got "
            f"{type(example_inputs).__name__}"
        )


def _split(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position and by name."""
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return tuple(example_inputs), {}


def _reason(error: Exception) -> str:
    """Return the first line of torch's message; where it only announces the reason, that too.

    Where torch suggests other dimensions, they follow: `torch.export.Dim` takes what they say.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((k for k, line in enumerate(lines) if not line.endswith(":")), len(lines))
    reason = " ".join(lines[: told + 1]) or type(error).__name__
    if "Suggested fixes:" in lines:
        start = lines.index("Suggested fixes:") + 1
        fixes = itertools.takewhile(lambda line: " = " in line, lines[start:])
        reason += f" Suggested fixes: {'; '.join(fixes)}"
    return reason + _place(error)


# How torch quotes a line of the traced code; what follows is the code.
_QUOTED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in .*\n\s*(?P<code>.*)')


def _place(error: Exception) -> str:
    """Return the line of the user's code that an error quotes, or else was raised in."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, str(frame.lineno), frame.line or "") for frame in frames]
    for match in _QUOTED.finditer(str(error)):
        places.append((match["file"], match["line"], match["code"]))
    for file, line, code in reversed(places):
        if is_users(file):
            return f" ({file}:{line}: {code.strip()})"
    return ""


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
