"""Apply algebraic rules: (x + a) + b = x + (a + b), x * y + x * z = x * (y + z), and the like.

The rules are data in `relax_passes/algebra/`, listed in `docs/algebraic-rules.md`. A rule fires
only where it saves FLOPs or bytes. By default floating-point operations may be grouped otherwise,
as BLAS and every fused kernel does; `relaxc.compile(..., precision="strict")` keeps to those rules
whose two sides are equal in every bit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import tvm
from tvm import relax

from relax_passes.algebra.rewriter import Rewriter
from relax_passes.algebra.rule import Family, Rule
from relax_passes.algebra.rule_table import FAMILIES
from relax_passes.canonicalize_bindings import canonicalize_bindings
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import OptionError, did_you_mean, option

_NAME = "apply_algebraic_rules"


@dataclass(frozen=True)
class AlgebraOptions:
    """Which rules may fire."""

    strict: bool = option(False, 'only rules that keep every bit, as with precision "strict"')
    without: tuple[str, ...] = option((), "rules and families that are switched off")
    only: tuple[str, ...] = option((), "the rules and families that may fire; none: all")


@graph_pass(name=_NAME, phase="rewrite", options=AlgebraOptions, aliases=("algebra",))
def apply_algebraic_rules(
    mod: tvm.IRModule, ctx: PassContext, options: AlgebraOptions
) -> tuple[tvm.IRModule, bool]:
    """Apply the algebraic rules that save FLOPs or bytes; precision "strict" keeps every bit."""
    strict = options.strict or ctx.precision == "strict"
    rewriter = Rewriter(_chosen(options), strict=strict, debug=ctx.debug)
    functions = {
        var: rewriter.rewrite(func) if isinstance(func, relax.Function) else func
        # A `match_cast` to the type that was there would hide the operator behind it.
        for var, func in canonicalize_bindings(mod).functions.items()
    }
    for name, subject, reason in rewriter.declined:
        ctx.log.decline(_NAME, f"{name} at {subject}", reason)
    if not rewriter.fired:
        return mod, False
    for name, count in rewriter.fired.items():
        ctx.log.fire(_NAME, f"{name}: {count}")
    saved = ctx.log.metrics.setdefault("algebra_saved", {"flops": 0, "bytes": 0, "calls": 0})
    saved["flops"] += rewriter.saved.flops
    saved["bytes"] += rewriter.saved.bytes
    saved["calls"] += rewriter.saved.calls
    cleaned = canonicalize_bindings(tvm.IRModule(functions, attrs=mod.attrs))
    return remove_dead_bindings(cleaned), True


def _chosen(options: AlgebraOptions) -> list[Rule]:
    """Return the rules of the table that are not switched off.

    Raises:
        OptionError: If a name is neither a rule's nor a family's.
    """
    known = {name for f in FAMILIES for name in (f.name, *(rule.name for rule in f.rules))}
    for field in ("without", "only"):
        for name in getattr(options, field):
            if name not in known:
                hint = did_you_mean(name, known)
                raise OptionError(
                    f"pass {_NAME!r}: no rule or family is called {name!r}{hint}", field
                )

    def listed(family: Family, rule: Rule, names: Collection[str]) -> bool:
        return family.name in names or rule.name in names

    return [
        rule
        for family in FAMILIES
        for rule in family.rules
        if not listed(family, rule, options.without)
        and (not options.only or listed(family, rule, options.only))
    ]
