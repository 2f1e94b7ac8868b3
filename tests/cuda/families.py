"""The families of kernels on targets without warps: which rule takes each."""

from __future__ import annotations

RULES = {
    **dict.fromkeys(("elementwise", "vectors", "broadcast", "transpose", "gather"), "elementwise"),
    **dict.fromkeys(("reduction", "softmax", "short_softmax", "layer_norm"), "row_kernel"),
    **dict.fromkeys(("matmul", "few_rows", "batched", "convolution", "attention"), "contraction"),
    **dict.fromkeys(("columns", "pooling"), "reduction"),
    "depthwise": "window",
    "scatter": "fallback",
}
