"""The CUDA rule list: the first rule that does not decline schedules the function."""

from __future__ import annotations

from tir_schedules.rule import Rule


def cuda_rules() -> list[Rule]:
    """Return the rules in the order they are asked; the last one takes anything."""
    from tir_schedules.cuda import (
        attention,
        byte_matmul,
        byte_rows,
        column_kernel,
        contraction,
        cuda_core_matmul,
        elementwise,
        fallback,
        few_rows,
        reduction,
        register_rows,
        row_kernel,
        tensor_core_matmul,
        tf32_matmul,
        transpose,
        window,
    )

    return [
        attention.RULE,  # scores, softmax and weighted sums of attention as one kernel
        transpose.RULE,  # maps that read across lines: tiles in shared memory
        elementwise.RULE,
        few_rows.RULE,  # products of up to 16 rows: weights straight from memory
        tensor_core_matmul.RULE,  # products and convolutions of 16-bit floats
        tf32_matmul.RULE,  # those of float32, where it may be rounded to tf32
        cuda_core_matmul.RULE,  # those of float32
        byte_rows.RULE,  # those of 8-bit integers of few rows
        byte_matmul.RULE,  # those of 8-bit integers
        contraction.RULE,  # matrix products and convolutions as tiles in shared memory
        window.RULE,  # pooling and depthwise convolution of channels that lie side by side
        register_rows.RULE,  # softmax, norms, long reductions whose rows fit in registers
        column_kernel.RULE,  # those of columns, whose neighbours in memory are other rows
        row_kernel.RULE,  # those with longer rows: one block of threads a row
        reduction.RULE,  # other pooling, short reductions: one thread a result
        fallback.RULE,
    ]
