"""Questions a rule asks about the blocks of a function, and the inlining all rules share."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, PrimFunc

from tir_schedules.let_names import renew_let_names
from tir_schedules.loads import loads_in

# A core moves about this many scalar elementwise results a microsecond, and a parallel region
# costs about 4 us: below PARALLEL_WORK scalar operations (about 30 us) loops stay serial.
PARALLEL_WORK = 60_000
# Recomputing up to this many operations a point is cheaper than storing and loading the row.
RECOMPUTE = 6
# Inlining one producer into several readers copies its expression: stop before it explodes.
_MAX_INLINED_NODES = 600
# Copies multiply along a chain (x > h ? x : x - h triples x), and TVM simplifies nested selects in
# time exponential in their depth: only few operations, one select at most, are written repeatedly.
_MAX_REPEATED_NODES = 6
# TVM's code generator substitutes let values into each other while it simplifies them, which takes
# time exponential in their nesting. Elementary functions bind none: see `llvm.lower_math`.
_MAX_LET_DEPTH = 7
# The simplifier proves bounds of what is inside each maximum, minimum and select: four times the
# time for each quantization in a chain, which has four of them.
_MAX_CHOICES = 16
_CHOICES = (tirx.Max, tirx.Min, tirx.Select)
_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, *_CHOICES, Call)


def leaf_blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    """Return the blocks of the function under the root, in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def is_reduction(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether a block accumulates over some axis."""
    return any(int(axis.iter_type) == tirx.IterVar.CommReduce for axis in sch.get(block).iter_vars)


def is_spatial(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether each of a block's axes names different elements of its result."""
    return all(int(axis.iter_type) == tirx.IterVar.DataPar for axis in sch.get(block).iter_vars)


def rule_tag(sch: s_tir.Schedule, block: SBlockRV) -> str:
    """Return the rule a blocked computation asks for, "" when it asks for none."""
    return str(sch.get(block).annotations.get("schedule_rule", ""))


def launches_threads(func: PrimFunc) -> bool:
    """Tell whether a function is written for threads already, as TVM's sorts for GPUs are."""
    found: list[tirx.AttrStmt] = []

    def visit(stmt: tirx.AttrStmt) -> None:
        if stmt.attr_key == "thread_extent":
            found.append(stmt)

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, visit), order="pre")
    return bool(found)


def is_output(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether a block writes a parameter of the function."""
    params = list(sch.mod["main"].params)
    return any(any(r.source.same_as(p) for p in params) for r in sch.get(block).writes)


def constant(extent: object) -> int | None:
    """Return an integer expression's value, None when it is symbolic."""
    if isinstance(extent, int):
        return extent
    return int(extent.value) if isinstance(extent, IntImm) else None


def extents(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[int | None]:
    """Return the extents of loops, None where symbolic."""
    return [constant(sch.get(loop).extent) for loop in loops]


def points(sizes: list[int | None], unknown: int = 256) -> int:
    """Return how many points a loop nest visits, counting a symbolic extent as `unknown`."""
    return math.prod(unknown if size is None else size for size in sizes)


def expression_nodes(node: object, kinds: tuple[type, ...] = _OPERATIONS) -> int:
    """Return how many calls and binary operations, or other `kinds`, an expression holds."""
    count = [0]

    def visit(_: object) -> None:
        count[0] += 1

    tvm_ffi.structural_walk(node, [(kind, visit) for kind in kinds], order="pre")
    return count[0]


def inline_spatial(
    sch: s_tir.Schedule,
    keep: tuple[str, ...] = (),
    recompute_limit: int | None = None,
    hot: str = "",
) -> None:
    """Inline every elementwise producer into its readers.

    Blocks named in `keep`, outputs, tagged blocks and reductions stay. A producer stays too when
    inlining it would repeat a long expression (a chain of squares doubles), make some reader's too
    large or its let bindings too deep, or when several blocks would recompute more than
    `recompute_limit` operations a point. Into the block named `hot`, which reads each operand many
    times, only plain copies are inlined.
    """
    for block in leaf_blocks(sch):
        stmt = sch.get(block)
        if str(stmt.name_hint) in keep or rule_tag(sch, block) or is_output(sch, block):
            continue
        if not is_spatial(sch, block) or len(stmt.writes) != 1:
            continue
        readers = sch.get_consumers(block)
        names = [str(sch.get(reader).name_hint) for reader in readers]
        if hot in names and expression_nodes(stmt.body):
            continue
        if recompute_limit is not None and len(readers) > 1:
            if work_per_point(stmt.body) > recompute_limit:
                continue
        if _grows_too_large(stmt, [sch.get(reader).body for reader in readers]):
            continue
        try:
            sch.compute_inline(block)
        except s_tir.ScheduleError:
            continue  # not a plain map (an opaque body): it keeps its own loops
        if let_depth(stmt.body):
            for reader in readers:
                renew_let_names(sch, reader)


def _grows_too_large(producer: SBlock, readers: list[object]) -> bool:
    """Tell whether the readers' expressions are too long to compile with the producer's in them."""
    own, buffer = producer.body, producer.writes[0].source
    loads = [len(loads_in(reader, buffer)) for reader in readers]
    nodes, choices = expression_nodes(own), expression_nodes(own, _CHOICES)
    if sum(loads) > 1 and (_computed_nodes(own) > _MAX_REPEATED_NODES or choices > 1):
        return True
    if max(map(let_depth, readers), default=0) + let_depth(own) > _MAX_LET_DEPTH:
        return True
    return any(
        (nodes + 1) * count + expression_nodes(reader) > _MAX_INLINED_NODES
        or (choices and choices * count + expression_nodes(reader, _CHOICES) > _MAX_CHOICES)
        for count, reader in zip(loads, readers, strict=True)
    )


def _computed_nodes(store: tirx.BufferStore) -> int:
    """Return how many operations a stored value takes, places in memory not counted.

    They are the same in each copy and are computed once; by symbolic sizes they are long.
    """
    value = tvm_ffi.structural_map(
        store.value, (TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype)))
    )
    return expression_nodes(value)


def vectorize_wide(sch: s_tir.Schedule, loop: LoopRV) -> None:
    """Vectorize a loop, unless it runs once: a vector of one lane is refused."""
    if constant(sch.get(loop).extent) != 1:
        sch.vectorize(loop)


def vectorize_lane(sch: s_tir.Schedule, epilogue: SBlockRV, tile: LoopRV) -> None:
    """Vectorize the lane loop of an epilogue at `tile`, and unroll the loops within the tile.

    A tile of one pixel, one block or one lane has no loop for it, so that the loops cannot be
    counted; an epilogue without loops of its own is left as it is.
    """
    loops = loops_within(sch, epilogue, tile)
    for loop in loops[:-1]:
        sch.unroll(loop)
    if loops:
        vectorize_wide(sch, loops[-1])


def loops_within(sch: s_tir.Schedule, block: SBlockRV, outer: LoopRV) -> list[LoopRV]:
    """Return the loops of a block inside `outer`; a loop that runs once may not exist."""
    loops = list(sch.get_loops(block))
    outer_var = sch.get(outer).loop_var
    depth = next(at for at, loop in enumerate(loops) if sch.get(loop).loop_var.same_as(outer_var))
    return loops[depth + 1 :]


def let_depth(node: object) -> int:
    """Return how many let bindings an expression has: they may all nest."""
    return expression_nodes(node, (tirx.Let,))


class _Schedule(s_tir.Schedule):
    """A schedule whose primitives do not check Python types before TVM itself does.

    Those checks are wrapped around each primitive and took a third of the time of scheduling.
    """


for _name, _primitive in vars(s_tir.Schedule).items():
    if hasattr(_primitive, "__wrapped__"):
        setattr(_Schedule, _name, _primitive.__wrapped__)


def new_schedule(func: PrimFunc) -> s_tir.Schedule:
    """Return a schedule that raises short errors, with the function under the name `main`."""
    return _Schedule(func, error_render_level="fast")


def work_per_point(body: object) -> int:
    """Return about how many scalar operations one execution of a block's body costs."""
    calls = [0]

    def visit(call: Call) -> None:
        calls[0] += int(getattr(call.op, "name", "").rpartition(".")[2] in _LONG_CALLS)

    tvm_ffi.structural_walk(body, (Call, visit), order="pre")
    return 1 + expression_nodes(body) + 15 * calls[0]


def total_work(sch: s_tir.Schedule, blocks: Iterable[SBlockRV]) -> int:
    """Return about how many scalar operations some blocks cost over all their loops."""
    return sum(
        points(extents(sch, sch.get_loops(block))) * work_per_point(sch.get(block).body)
        for block in blocks
    )


_LONG_CALLS = frozenset(
    "exp exp2 tanh sinh cosh erf sigmoid log log2 log1p pow sin cos sqrt".split()
)
