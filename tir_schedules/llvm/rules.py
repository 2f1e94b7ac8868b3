"""The LLVM rule list: the first rule that does not decline schedules the function."""

from __future__ import annotations

from tir_schedules.rule import Rule


def llvm_rules() -> list[Rule]:
    """Return the rules in the order they are asked; the last one takes anything."""
    from tir_schedules.llvm import (
        annotated_loops,
        attention,
        batch_matmul,
        conv2d_nchwc,
        depthwise_conv2d,
        elementwise,
        fallback,
        matmul,
        pool,
        reduction,
        row_kernel,
        row_results,
        transpose,
        winograd_rule,
    )

    return [
        annotated_loops.RULE,
        attention.RULE,
        conv2d_nchwc.RULE,
        winograd_rule.RULE,
        depthwise_conv2d.RULE,
        matmul.RULE,
        batch_matmul.RULE,
        pool.RULE,
        row_results.RULE,  # several results a row, such as mean and variance
        row_kernel.RULE,  # softmax, layer norm: reductions of one row, then maps over it
        reduction.RULE,
        transpose.RULE,
        elementwise.RULE,
        fallback.RULE,
    ]
