"""Which OpInfos cover the core ATen operators: torch tags the operators, OpInfo ships samples."""

from __future__ import annotations

import functools
from typing import Any

import torch

# Core operators whose samples stand under the name of a function that decomposes to them.
_SAMPLED_BY = {
    "_adaptive_avg_pool2d": ["nn.functional.adaptive_avg_pool2d"],
    "_adaptive_avg_pool3d": ["nn.functional.adaptive_avg_pool3d"],
    "_cdist_forward": ["cdist"],
    "_embedding_bag": ["nn.functional.embedding_bag"],
    "_fft_c2r": ["fft.irfft"],
    "_fft_r2c": ["fft.rfft"],
    "_local_scalar_dense": ["item"],
    "_log_softmax": ["log_softmax"],
    "_native_batch_norm_legit_no_training": ["nn.functional.batch_norm"],
    "_pdist_forward": ["nn.functional.pdist"],
    "_softmax": ["softmax"],
    "_to_copy": ["to", "float", "int", "bool"],
    "col2im": ["nn.functional.fold"],
    "convolution": [
        "nn.functional.conv1d",
        "nn.functional.conv2d",
        "nn.functional.conv3d",
        "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d",
        "nn.functional.conv_transpose3d",
    ],
    "copy": ["slice_scatter", "index_copy"],
    "index": ["__getitem__"],
    "max_pool2d_with_indices": ["nn.functional.max_pool2d"],
    "max_pool3d_with_indices": ["nn.functional.max_pool3d"],
    "native_dropout": ["nn.functional.dropout"],
    "rand": ["rand_like"],
    "reflection_pad1d": ["nn.functional.pad:reflect"],
    "replication_pad2d": ["nn.functional.pad:replicate"],
    "upsample_bilinear2d": ["nn.functional.interpolate:bilinear"],
    "upsample_nearest2d": ["nn.functional.interpolate:nearest"],
}

# Kept whole besides the core set: each has a converter of its own.
KEPT_WHOLE = [
    "nn.functional.gelu",
    "nn.functional.group_norm",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.instance_norm",
    "nn.functional.interpolate:bicubic",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.mish",
    "nn.functional.rms_norm",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.silu",
    "nn.functional.softplus",
    "matmul",
    "roll",
]

# Neither core nor kept whole: converters and decompositions that models were seen to need.
BEYOND_CORE = [
    "bincount",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "frexp",
    "histc",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.det",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.matrix_power",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.solve_triangular",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "mode",
    "unique_consecutive",
]

# Names that only look like a core operator's.
_OTHERS = ("masked.", "sparse.", "linalg.")

# Gradients: relaxc compiles forward graphs so far.
_GRADIENTS = "backward"


def core_operators() -> list[str]:
    """Return the names, without overload, of what `torch.Tag.core` marks, gradients left out."""
    names = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        overloads = getattr(packet, "overloads", list)()
        if any(torch.Tag.core in getattr(packet, o).tags for o in overloads):
            names.append(name)
    return [name for name in names if _GRADIENTS not in name]


def key_of(info: Any) -> str:
    """Return an OpInfo's name and variant."""
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else info.name


@functools.cache
def op_infos() -> dict[str, Any]:
    """Return the OpInfos to run, by key."""
    from torch.testing._internal.common_methods_invocations import op_db

    core = set(core_operators())
    named = {key for keys in _SAMPLED_BY.values() for key in keys} | {*KEPT_WHOLE, *BEYOND_CORE}
    found = {}
    for info in op_db:
        key = key_of(info)
        aliases = {info.name, info.aten_name, info.name.split(".")[-1]}
        is_core = bool(aliases & core) and not info.name.startswith(_OTHERS)
        if (is_core or named & {key, info.name}) and _GRADIENTS not in info.name:
            found[key] = info
    return dict(sorted(found.items()))


def uncovered() -> list[str]:
    """Return the core operators that no chosen OpInfo is named after."""
    infos = op_infos().values()
    names = {n for i in infos for n in (i.name, i.aten_name, i.name.split(".")[-1])}
    return [name for name in core_operators() if name not in names and name not in _SAMPLED_BY]
