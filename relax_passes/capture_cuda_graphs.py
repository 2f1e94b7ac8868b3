"""Record runs of CUDA kernels as graphs, so that a run of the model launches few things.

A launch costs the host some microseconds; a recorded graph of any number of kernels costs one
launch. A kernel is recorded if all it reads and writes lies where it lay in the last run: in the
arena, or in constants. Those that read an argument or write a result of the model stay as they are.
TVM's `RewriteCUDAGraph` finds the stretches between them and makes each a function, which the
runtime runs once, records at the second call and from then on launches.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.graph_results import give_results
from relax_passes.memory.live_ranges import bindings_of
from relax_passes.pass_base import PassContext, graph_pass

NAME = "capture_cuda_graphs"
RECORDED = "relaxc.record_graphs"  # of a function whose kernels the build records
_CAPTURE = "_cuda_graph_capture"
_CONFIG = {"relax.backend.use_cuda_graph": True}


@graph_pass(name=NAME, phase="memory")
def capture_cuda_graphs(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Let the kernels of a model of static sizes be recorded and launched as graphs (on CUDA).

    This marks `main`; the build records, when the versions of a model for several sizes are one
    module, because the runtime numbers its graphs. The report gets `launches`: the kernels and
    graphs that one run of `main` launches.
    """
    main = mod["main"]
    if ctx.machine.kind != "cuda" or (main.attrs and RECORDED in main.attrs):
        return mod, False
    kernels = ctx.log.metrics["launches"] = _launches(mod)
    if _has_symbolic_sizes(main):
        ctx.log.decline(NAME, "main", "its sizes are symbolic: what a run uses may lie elsewhere")
        return mod, False
    recorded = record_graphs(mod)
    count = len(_captured(recorded))
    if not count:
        ctx.log.decline(NAME, "main", "every kernel reads an argument or writes a result")
        return mod, False
    launches = ctx.log.metrics["launches"] = _launches(recorded)
    ctx.log.fire(NAME, f"{launches} launches a run, {count} of them graphs, for {kernels} kernels")
    changed = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    changed["main"] = main.with_attr(RECORDED, 1)
    return changed, True


def record_marked_graphs(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with graphs to record if the pass has marked one of its functions."""
    marked = any(
        isinstance(func, relax.Function) and func.attrs and RECORDED in func.attrs
        for func in mod.functions.values()
    )
    return record_graphs(mod) if marked else mod


def record_graphs(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each stretch of kernels that may be recorded as a function."""
    with tvm.transform.PassContext(config=_CONFIG):
        mod = relax.transform.RewriteCUDAGraph()(mod)
    return give_results(mod, _captured(mod))


def _captured(mod: tvm.IRModule) -> list[tvm.ir.GlobalVar]:
    """Return the functions that are recorded."""
    return [var for var in mod.functions if _CAPTURE in var.name_hint]


def _launches(mod: tvm.IRModule) -> int:
    """Return how many kernels and graphs `main` launches; a kernel of several loops counts once."""
    return sum(_is_launch(binding.value, mod) for binding in bindings_of(mod["main"]))


def _is_launch(value: object, mod: tvm.IRModule) -> bool:
    if not isinstance(value, tvm.ir.Call):
        return False
    if isinstance(value.op, tvm.ir.GlobalVar):
        return isinstance(mod[value.op], tirx.PrimFunc)
    return any(
        isinstance(arg, relax.Tuple)
        and any(isinstance(f, tvm.ir.GlobalVar) and _CAPTURE in f.name_hint for f in arg.fields)
        for arg in value.args
    )


def _has_symbolic_sizes(func: relax.Function) -> bool:
    found: list[tirx.Var] = []
    for param in func.params:
        tvm_ffi.structural_walk(param.ty, (tirx.Var, found.append), order="pre")
    return bool(found)
