"""Cross-compile zoo models for CUDA; count kernels and launches, what spills, what fell back.

    python -m tests.cuda.zoo [--archs sm_80,sm_90] [--precisions float32,float16] [model ...]

No GPU is needed, only nvcc (`pip install relaxc[cuda]`). The table of the day in
benchmarks/results gets a row as soon as it is known. The exit status is 1 where a register spills,
a kernel has no schedule or is left to the fallback, or a model does not compile.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from relaxc.compiler import import_source
from tests.cuda.half_model import half_model
from tests.cuda.ptxas import SM_80_OPTIONS, KernelUsage, cuda_source, find_tool, kernel_usage
from tests.cuda.zoo_table import Row, merged, path_of, read_rows, write_rows
from tir_schedules import Machine

MODELS = (
    *("resnet50", "mobilenet_v2", "bert_base", "gpt2", "llama_small", "vit_b16"),
    *("swin_tiny", "convnext_tiny"),
)
# Rules that keep products in pipelined tiles, most of them on Tensor Cores.
TILED = frozenset(
    {"attention", "few_rows", "tensor_core_matmul", "tf32_matmul", "cuda_core_matmul"}
)


@dataclass(frozen=True)
class Compiled:
    """A model's scheduled kernels for one architecture, and what is known of them.

    `fallbacks` are those no other rule took, `tiled` the share of the arithmetic in `TILED` rules.
    """

    kernels: dict[str, PrimFunc]
    calls: int
    launches: int
    fallbacks: list[str]
    tiled: float
    target: Target

    def usage(self, nvcc: str) -> dict[str, KernelUsage]:
        """Return what each kernel takes of a multiprocessor, as ptxas says."""
        source = cuda_source(self.kernels, self.target)
        return kernel_usage(nvcc, source, str(self.target.attrs["arch"]))


def compile_for(module: tvm.IRModule, arch: str) -> Compiled:
    """Carry a graph through the pipeline for one architecture."""
    target = Target({**SM_80_OPTIONS, "arch": arch})
    ctx = PassContext(target, Machine.from_target(target))
    module = default_pipeline().run(module, ctx)
    kernels = {v.name_hint: f for v, f in module.functions.items() if isinstance(f, PrimFunc)}
    report = ctx.log.metrics["kernels"]
    work = {k["name"]: (k["flops"] or 0) * k["calls"] for k in report}
    tiled = sum(work[k["name"]] for k in report if k["rule"] in TILED)
    return Compiled(
        kernels,
        sum(k["calls"] for k in report),
        int(ctx.log.metrics["launches"]),
        [k["name"] for k in report if k["rule"] == "fallback"],
        tiled / max(1, sum(work.values())),
        target,
    )


def check_model(name: str, precision: str, archs: Sequence[str], nvcc: str, path: Path) -> bool:
    """Compile one model, put it into the table, and return whether all is well."""
    from benchmarks.zoo import onnx_path

    model = onnx.load(str(onnx_path(name)))
    if precision == "float16":
        model = half_model(model)
    well = True
    for arch in archs:
        start = time.perf_counter()
        compiled = compile_for(import_source(model).module, arch)
        usage = compiled.usage(nvcc)
        owners = {k for k in compiled.kernels if any(u.startswith(f"{k}_kernel") for u in usage)}
        without = sorted(set(compiled.kernels) - owners)
        spilled = sorted(k for k, used in usage.items() if used.spills)
        row = Row(
            *(name, precision, arch, len(compiled.kernels), compiled.calls, compiled.launches),
            round(100 * compiled.tiled, 1),
            *(len(compiled.fallbacks), len(without), len(spilled)),
            max(used.registers for used in usage.values()),
        )
        write_rows(path, merged(read_rows(path), [row]), _version(nvcc))
        print(row.line(), f"{time.perf_counter() - start:.0f} s", flush=True)
        for what, names in (("fallback", compiled.fallbacks), ("spills", spilled)):
            if names:
                print(f"  {what}: {', '.join(names)}", file=sys.stderr, flush=True)
        well &= row.is_well
    return well


def _version(nvcc: str) -> str:
    """Return what nvcc says of itself, such as `nvcc 13.0`."""
    ran = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"release ([\d.]+)", ran.stdout)
    return f"nvcc {found[1]}" if found else "nvcc"


def main() -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--archs", default="sm_80,sm_90")
    parser.add_argument("--precisions", default="float32,float16")
    args = parser.parse_args()
    nvcc = find_tool("nvcc")
    if nvcc is None:
        parser.error("there is no nvcc: pip install relaxc[cuda]")
    well, path = True, path_of(datetime.date.today().isoformat())
    for precision in args.precisions.split(","):
        for name in args.models or MODELS:
            try:
                well &= check_model(name, precision, args.archs.split(","), nvcc, path)
            except Exception as fault:  # one model's fault does not hide the others
                well = False
                print(f"| {name} | {precision} | {str(fault).strip().splitlines()[-1]} |")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
