"""The pipeline: one readable list of named phases, each a list of passes.

    canonicalize -> raise -> rewrite -> precision -> layout -> lower -> fuse -> schedule -> memory

`Pipeline.run` carries a module through the phases, records the time and the effect of every pass,
checks the invariant of each phase boundary (`relax_passes.verify`; in debug mode that of each pass
too) and, on request, dumps the module after each phase as TVMScript that parses back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from relax_passes.apply_algebraic_rules import apply_algebraic_rules
from relax_passes.assign_layout import assign_layout
from relax_passes.capture_cuda_graphs import capture_cuda_graphs
from relax_passes.convolve_before_resampling import convolve_before_resampling
from relax_passes.decompose_inference import decompose_inference
from relax_passes.drop_index_checks import drop_index_checks
from relax_passes.drop_row_views import drop_row_views
from relax_passes.dump_module import dump_module
from relax_passes.duplicate_cheap_producers import duplicate_cheap_producers
from relax_passes.elide_copies import elide_copies
from relax_passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from relax_passes.eliminate_dead_code import eliminate_dead_code
from relax_passes.fold_batch_norm import fold_batch_norm
from relax_passes.fold_constant import fold_constant
from relax_passes.fold_fixed_scales import fold_fixed_scales
from relax_passes.fold_padding import fold_padding
from relax_passes.fold_preceding_batch_norm import fold_preceding_batch_norm
from relax_passes.fuse_operators import fuse_operators
from relax_passes.fuse_siblings import fuse_siblings
from relax_passes.guard_float_sums import guard_float_sums
from relax_passes.hand_over_workspaces import hand_over_workspaces
from relax_passes.images_of_tokens import images_of_tokens
from relax_passes.lift_convolution_1d import lift_convolution_1d
from relax_passes.lift_preparation import lift_preparation
from relax_passes.lower_operators import lower_operators
from relax_passes.memory.check_sizes import check_sizes
from relax_passes.memory.order_bindings import order_bindings
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.merge_parallel_convolutions import merge_parallel_convolutions
from relax_passes.merge_parallel_products import merge_parallel_products
from relax_passes.multiply_bytes import multiply_bytes
from relax_passes.name_sizes import name_sizes
from relax_passes.pass_base import ALIASES, PHASES, GraphPass, PassContext
from relax_passes.pass_effect import count_module
from relax_passes.pass_options import did_you_mean
from relax_passes.raise_attention import raise_attention
from relax_passes.raise_gelu import raise_gelu
from relax_passes.raise_layer_norm import raise_layer_norm
from relax_passes.raise_rms_norm import raise_rms_norm
from relax_passes.record_graphs import record_graph
from relax_passes.run_pass import run_pass
from relax_passes.schedule_kernels import schedule_kernels
from relax_passes.simplify_views import simplify_views
from relax_passes.sink_views import sink_views
from relax_passes.split_at_peak import split_at_peak
from relax_passes.split_transposed_batch import split_transposed_batch
from relax_passes.tune_kernels import tune_kernels
from relax_passes.verify import verify_import, verify_phase
from relax_passes.view_before_slice import view_before_slice
from relax_passes.widen_half_precision import widen_half_precision
from relax_passes.widen_indices import widen_indices
from relax_passes.wrap_integers import wrap_integers

OnPhase = Callable[[str, int, int], None]
OnPass = Callable[[str], None]

# A phase without these passes cannot hand over to the next one, so they cannot be switched off.
REQUIRED = frozenset({"lower_operators", "schedule_kernels", "plan_memory", "check_sizes"})


@dataclass(frozen=True)
class Pipeline:
    """Named phases in order, each a tuple of passes in order."""

    phases: Mapping[str, tuple[GraphPass, ...]]

    def passes(self) -> list[GraphPass]:
        """Return every pass in the order it runs."""
        return [p for phase in self.phases.values() for p in phase]

    def without(self, *names: str) -> Pipeline:
        """Return this pipeline with the named passes switched off; aliases count as names.

        Raises:
            ValueError: If a name is unknown, or names a pass that no module can do without.
        """
        off = {self._name_of(name) for name in names}
        for name in sorted(off & REQUIRED):
            raise ValueError(f"pass {name!r} cannot be switched off: its phase needs it")
        return Pipeline(
            {ph: tuple(p for p in ps if p.name not in off) for ph, ps in self.phases.items()}
        )

    def with_options(self, name: str, **values: Any) -> Pipeline:
        """Return this pipeline with options of one pass set, wherever the pass occurs in it.

        Raises:
            ValueError: If no pass has that name or alias, it has no such option, or a value does
                not fit.
        """
        name = self._name_of(name)
        return Pipeline(
            {
                phase: tuple(p.with_options(**values) if p.name == name else p for p in passes)
                for phase, passes in self.phases.items()
            }
        )

    def _name_of(self, name: str) -> str:
        """Return the name of a pass in this pipeline from its name or an alias."""
        known = {p.name for p in self.passes()}
        full = ALIASES.get(name, name)
        if full not in known:
            hint = did_you_mean(name, [*known, *ALIASES])
            raise ValueError(f"no pass is called {name!r}; there are {sorted(known)}{hint}")
        return full

    def with_phase(self, phase: str, *passes: GraphPass) -> Pipeline:
        """Return this pipeline with the passes of one phase replaced.

        Raises:
            ValueError: If the phase is unknown.
        """
        if phase not in self.phases:
            raise ValueError(f"no phase is called {phase!r}; there are {list(self.phases)}")
        return Pipeline({**self.phases, phase: passes})

    def until(self, phase: str) -> Pipeline:
        """Return the pipeline that stops after `phase`; `tutorials/` use it to show one stage.

        Raises:
            ValueError: If the phase is unknown.
        """
        if phase not in self.phases:
            raise ValueError(f"no phase is called {phase!r}; there are {list(self.phases)}")
        names = list(self.phases)
        return Pipeline({n: self.phases[n] for n in names[: names.index(phase) + 1]})

    def run(
        self,
        mod: tvm.IRModule,
        ctx: PassContext,
        *,
        dump_dir: str | Path | None = None,
        on_phase: OnPhase | None = None,
        on_pass: OnPass | None = None,
    ) -> tvm.IRModule:
        """Carry `mod` through all phases.

        Args:
            mod: Module with a function `main`, as a frontend returns it.
            ctx: Target, hardware model and options; takes the passes' notes. What each run of a
                pass did lands in `ctx.log.metrics["passes"]` (`PassEffect.to_dict`), every pass's
                wall time in seconds in `ctx.log.metrics["pass_seconds"]`.
            dump_dir: Folder that receives `NN_<phase>.py` after each phase.
            on_phase: Called as `on_phase(name, index, total)` before each phase.
            on_pass: Called with the name of each pass before it runs, and with "" at its end.

        Raises:
            relax_passes.verify.VerificationError: If a phase breaks its invariant; with
                `ctx.debug` the text names the pass.
        """
        if ctx.debug:
            verify_import(mod)
        counts = count_module(mod)
        record_graph("import", mod, counts.bindings, ctx)
        _dump(mod, dump_dir, 0, "import")
        for index, (phase, passes) in enumerate(self.phases.items(), start=1):
            if on_phase is not None:
                on_phase(phase, index, len(self.phases))
            with ctx.target:
                for graph_pass in passes:
                    if on_pass is not None:
                        on_pass(graph_pass.name)
                    mod, counts = run_pass(graph_pass, phase, mod, counts, ctx)
            if on_pass is not None:
                on_pass("")
            verify_phase(phase, mod, ctx)
            record_graph(phase, mod, counts.bindings, ctx)
            _dump(mod, dump_dir, index, phase)
        return mod


def default_pipeline() -> Pipeline:
    """Return the pipeline that `relaxc.compile` runs when it is given no other."""
    return Pipeline(
        {
            "canonicalize": (
                eliminate_dead_code,
                widen_half_precision,
                fold_constant,
                simplify_views,
                eliminate_common_subexpressions,
            ),
            "raise": (
                split_transposed_batch,
                raise_layer_norm,
                raise_rms_norm,
                raise_gelu,
                # A softmax in elementary operators, of which `raise_attention` makes attention.
                apply_algebraic_rules.with_options(only=("softmax", "softmax_unshifted")),
                raise_attention,
                drop_row_views,
                simplify_views,
            ),
            # What BN folding leaves becomes a scale and a shift, whose constants then fold.
            "rewrite": (
                apply_algebraic_rules,
                fold_padding,
                fold_preceding_batch_norm,
                fold_batch_norm,
                decompose_inference,
                fold_fixed_scales,
                fold_constant,
                sink_views,
                images_of_tokens,
                convolve_before_resampling,
                apply_algebraic_rules.with_options(only=("layer_before_pixels",)),
                merge_parallel_products,
                merge_parallel_convolutions,
                view_before_slice,
                eliminate_dead_code,
            ),
            "precision": (),
            "layout": (
                lift_convolution_1d,
                simplify_views,
                multiply_bytes,
                assign_layout,
                simplify_views,
                split_at_peak,
                eliminate_dead_code,
            ),
            "lower": (
                drop_index_checks,
                tune_kernels,
                lower_operators,
                widen_indices,
                guard_float_sums,
                wrap_integers,
                lift_preparation,
                eliminate_dead_code,
            ),
            "fuse": (duplicate_cheap_producers, elide_copies, fuse_operators, fuse_siblings),
            "schedule": (name_sizes, schedule_kernels, hand_over_workspaces),
            "memory": (order_bindings, plan_memory, check_sizes, capture_cuda_graphs),
        }
    )


assert tuple(default_pipeline().phases) == PHASES


def _dump(mod: tvm.IRModule, folder: str | Path | None, index: int, phase: str) -> None:
    if folder is not None:
        dump_module(mod, Path(folder) / f"{index:02d}_{phase}.py")
