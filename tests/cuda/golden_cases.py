"""One kernel of each family of schedules, whose structure is checked in under `golden/`.

python -m tests.cuda.golden_cases        # write all files anew; look at the difference
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tvm.relax import op
from tvm.target import Target
from tvm.tirx import PrimFunc

from tests.cuda.byte_products import byte_convolution, byte_matmul
from tests.cuda.fused_function import fused_function
from tests.cuda.kernel_structure import structure
from tests.cuda.opencl_kernels import kernels_of
from tests.cuda.products import convolution, matmul
from tests.cuda.ptxas import SM_80, SM_80_OPTIONS, cuda_source
from tests.cuda.test_attention import FULL, HALF, Case
from tir_schedules import schedule_func

FOLDER = Path(__file__).parent / "golden"
_SM_75 = Target({**SM_80_OPTIONS, "arch": "sm_75"})
_NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}

# The function of each case, and the rule that takes it.
CASES: dict[str, tuple[Callable[[], PrimFunc], str]] = {
    "elementwise": (
        lambda: fused_function(lambda x, y: op.nn.silu(op.add(x, y)), [(256, 512), (512,)]),
        "elementwise",
    ),
    "transpose": (
        lambda: fused_function(lambda x: op.permute_dims(x), [(96, 64)]),
        "transpose",
    ),
    "softmax_of_rows": (lambda: fused_function(op.nn.softmax, [(64, 1000)]), "register_rows"),
    "layer_norm_float16": (
        lambda: fused_function(
            lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
            [(64, 768), (768,), (768,)],
            "float16",
        ),
        "register_rows",
    ),
    "softmax_of_wide_rows": (lambda: fused_function(op.nn.softmax, [(64, 4096)]), "register_rows"),
    "softmax_of_long_rows": (lambda: fused_function(op.nn.softmax, [(8, 70_000)]), "row_kernel"),
    "softmax_of_columns": (
        lambda: fused_function(lambda x: op.nn.softmax(x, axis=1), [(4, 64, 96)]),
        "column_kernel",
    ),
    "sum_of_long_columns": (
        lambda: fused_function(lambda x: op.sum(x, axis=0), [(5000, 70)]),
        "column_kernel",
    ),
    "pooling": (
        lambda: fused_function(lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2)), [(1, 5, 33, 33)]),
        "reduction",
    ),
    "depthwise": (
        lambda: fused_function(
            lambda x, w: op.nn.conv2d(x, w, 1, 1, groups=32, **_NHWC),
            [(1, 28, 28, 32), (3, 3, 1, 32)],
        ),
        "window",
    ),
    "matmul_float16": (lambda: matmul(512, 512, 512).func, "tensor_core_matmul"),
    "matmul_float32": (lambda: matmul(512, 512, 512, dtype="float32").func, "cuda_core_matmul"),
    "matmul_of_few_rows": (
        lambda: matmul(4, 512, 512, dtype="float32", epilogue=False).func,
        "few_rows",
    ),
    "convolution_float16": (lambda: convolution(14, 64, 64, 3).func, "tensor_core_matmul"),
    "matmul_int8": (lambda: byte_matmul(512, 512, 512).func, "byte_matmul"),
    "matmul_int8_of_few_rows": (lambda: byte_matmul(4, 512, 512).func, "byte_rows"),
    "convolution_int8": (lambda: byte_convolution(14, 64, 64, 3).func, "byte_matmul"),
    "matmul_before_sm_80": (
        lambda: matmul(64, 64, 64, dtype="float32", epilogue=False).func,
        "contraction",
    ),
    "attention_float16": (lambda: Case((128, 128), HALF, size=64).func(), "attention"),
    "attention_float32": (
        lambda: Case((128, 128), FULL, size=64, dtype="float32").func(),
        "attention",
    ),
}


def written(name: str) -> str:
    """Return the structure of a case's kernels, headed by the rule that made them."""
    make, rule = CASES[name]
    target = _SM_75 if rule == "contraction" else SM_80
    scheduled = schedule_func(make(), target)
    assert scheduled.rule == rule, (scheduled.rule, scheduled.declined)
    source = cuda_source({"main": scheduled.func}, target)
    parts = [f"rule: {rule}\n"]
    for at, grid in enumerate(kernels_of(scheduled.func)):
        parts.append(structure(source, "main_kernel" + (f"_{at}" if at else ""), grid))
    return "\n".join(parts)


def main() -> None:
    """Write the files of all cases."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name in CASES:
        (FOLDER / f"{name}.txt").write_text(written(name))


if __name__ == "__main__":
    main()
