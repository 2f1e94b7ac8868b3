"""Put convolutions and what lies between them into the layouts that cost least.

The plan says in which layout each value is computed (`layout/plan.py`); one forward walk emits the
operators in these layouts, with transforms where a reader asks for another. Weights and per-channel
constants are packed here, at compile time.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.emit_as import emit_as
from relax_passes.layout.blocked import Blocked, dims_of
from relax_passes.layout.channels_last import ChannelsLast, chunk_of_channels
from relax_passes.layout.channelwise_demands import is_mean_of_pixels
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.obstacles import convolution_obstacle, transpose_obstacle
from relax_passes.layout.pack_weights import WeightPacking
from relax_passes.layout.plan import LayoutPlan, plan_layouts
from relax_passes.layout.rules import BlockedOperators, mean_of_pixels
from relax_passes.layout.transforms import TO_CHANNELS_LAST, LayoutTransforms
from relax_passes.layout.versions import Versions
from relax_passes.lowering.rule import dtype_of
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import rewrite_functions


@graph_pass(name="assign_layout", phase="layout")
def assign_layout(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Choose layouts by what kernels and transforms cost: NCHW, NHWC, or blocks NCHW[x]c."""
    if not (ctx.machine.kind == "llvm" or ctx.machine.is_gpu):
        return mod, False
    walk = _Walk(mod, ctx)
    rewrite_functions(walk, mod, walk.prepare)
    if not walk.operators.convolutions:
        return mod, False
    ctx.log.metrics["layout_transforms"] = walk.transforms.count
    packed = walk.weights.at_run_time
    best = "the least cost" if walk.is_optimal else "a low cost"
    ctx.log.fire(
        "assign_layout",
        f"{walk.operators.convolutions} convolutions in "
        f"{'NHWC' if walk.lanes.one_block else 'blocked layout'}, "
        f"{walk.transforms.count} layout transforms, {best} of {walk.cycles:.0f} cycles"
        + (f", {packed} weights packed in each run" if packed else ""),
    )
    return walk.builder_.get(), True


def _lanes_of(mod: tvm.IRModule, ctx: PassContext) -> Lanes:
    if ctx.machine.is_gpu:
        return ChannelsLast(chunk_of_channels(mod), ctx.precision != "strict")
    from tir_schedules.llvm.permute_lanes import can_permute

    count = ctx.machine.lanes("float32")
    # Zeros times infinity are NaN: what fills up a block may not meet what was infinite.
    return Lanes(count, ctx.precision != "strict", can_permute(count, ctx.machine))


@mutator
class _Walk(PyExprMutator):
    """Emits each operator in the layout of the plan; others read the version in NCHW."""

    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.ctx, self.mod = ctx, mod
        self.lanes = _lanes_of(mod, ctx)
        self.transforms = LayoutTransforms(self.builder_)
        self.weights = WeightPacking(self.builder_)
        self.versions = Versions(self.builder_, self.transforms, self.visit_expr)
        self.operators = BlockedOperators(
            self.builder_, self.versions, self.transforms, self.weights, self.lanes, mod
        )
        self.layouts: dict[relax.Var, int] = {}
        self.only_blocked: set[relax.Var] = set()
        self.cycles, self.is_optimal = 0.0, True

    def prepare(self, func: relax.Function) -> None:
        """Plan the layouts of the function that is visited next."""
        plan: LayoutPlan = plan_layouts(func, self.lanes, self.ctx.machine, self.mod)
        self.layouts = plan.layouts
        self.cycles += plan.cycles
        self.is_optimal &= plan.is_optimal

    def visit_binding_block_(self, block: relax.BindingBlock) -> relax.BindingBlock:
        with self.versions.scope():
            return super().visit_binding_block_(block)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        with self.versions.scope():
            return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call, var = binding.value, binding.var
        block = self.layouts.get(var)
        if block is not None:
            # Dumps keep the graph's names.
            value = self.builder_.emit(self.operators.emit(call, block), var.name)
            self._hold(var, value, block)
            return
        self._log_obstacle(call)
        from_blocks = self._from_blocks(call)
        if from_blocks is not None:
            self._bind(var, from_blocks)
            return
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        var, block = binding.var, self.layouts.get(binding.var)
        if block is None:
            super().visit_match_cast_(binding)
            return
        image = self.versions.of(binding.value, block).value
        batch, _, height, width = dims_of(var)
        sizes = [batch, dims_of(image)[1], height, width, block]
        checked = relax.TensorType(sizes, dtype_of(image))
        self._hold(var, self.builder_.match_cast(image, checked, var.name), block)

    def _hold(self, var: relax.Var, value: relax.Expr, block: int) -> None:
        """Let `value` stand for `var` in blocks; NCHW is made of it when something asks."""
        result = Blocked(value, block, int(dims_of(var)[1]))
        self.versions.blocked[var] = result
        if isinstance(var, relax.DataflowVar):
            self.only_blocked.add(var)
        else:
            self._bind(var, self.transforms.unblock(result))

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        """Let `value` stand for `var`, a result of the block if `var` is one."""
        if isinstance(var, relax.DataflowVar):
            self.set_var_remap(var, value)
        else:
            self.set_var_remap(var, emit_as(self.builder_, var, value))

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        if var in self.only_blocked:
            self.set_var_remap(var, self.transforms.unblock(self.versions.blocked[var]))
            self.only_blocked.discard(var)
        return super().visit_dataflow_var_(var)

    def _from_blocks(self, call: relax.Expr) -> relax.Var | None:
        """Return the result in NCHW of a call that reads blocks, None if it reads NCHW."""
        name = operator_name(call)
        if name not in ("permute_dims", "mean") or call.args[0] not in self.only_blocked:
            return None
        x = self.versions.blocked[call.args[0]]
        if name == "permute_dims" and axes_of(call) == TO_CHANNELS_LAST:
            return self.transforms.channels_last(x)
        if name == "mean" and is_mean_of_pixels(call) and not self.lanes.is_channels_last(x.block):
            pixel = Blocked(self.builder_.emit(mean_of_pixels(x)), x.block, x.channels)
            rows = relax.op.reshape(self.transforms.unblock(pixel), dims_of(call))
            return self.builder_.emit(rows)
        return None

    def _log_obstacle(self, call: relax.Expr) -> None:
        name = operator_name(call)
        obstacle = {"nn.conv2d": convolution_obstacle, "nn.conv2d_transpose": transpose_obstacle}
        if name in obstacle and (reason := obstacle[name](call, self.lanes)) is not None:
            self.ctx.log.decline("assign_layout", name.removeprefix("nn."), reason)
