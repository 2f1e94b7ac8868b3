"""Split a reduction whose length is no multiple of the vector width into main part and tail."""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.tirx import Buffer, For, IterVar, PrimFunc, SeqStmt, Stmt, Var

from tir_schedules.variables import substitute


def split_reduction_tail(func: PrimFunc, name: str, main: int) -> PrimFunc:
    """Split the innermost reduced axis of a block into its first `main` steps and the rest.

    The main part becomes a reduction of its own, into a new buffer; the rest of the steps start
    from its result. No step of either part tests a bound.

    Args:
        func: A function whose blocks are in canonical form: one loop an axis.
        name: The reduction block, which writes one buffer.
        main: Steps of the main part, less than the axis' extent.

    Raises:
        ValueError: If the function has no such block in canonical form.
    """
    root = func.body.block
    stages = list(root.body.seq) if isinstance(root.body, SeqStmt) else [root.body]
    nests = [_nest(stage) for stage in stages]
    at = next(
        (i for i, (_, nest) in enumerate(nests) if nest and str(nest.block.name_hint) == name), None
    )
    if at is None:
        raise ValueError(f"no canonical block {name}")
    loops, realize = nests[at]
    buffer, parts = _split(loops, realize, main)
    body = SeqStmt([*stages[:at], *parts, *stages[at + 1 :]])
    new_root = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        body,
        root.init,
        [*root.alloc_buffers, buffer],
        root.match_buffers,
        root.annotations,
    )
    outer = func.body
    return func.with_body(s_tir.SBlockRealize(outer.iter_values, outer.predicate, new_root))


def _nest(stage: Stmt) -> tuple[list[For], s_tir.SBlockRealize | None]:
    loops: list[For] = []
    while isinstance(stage, For):
        loops.append(stage)
        stage = stage.body
    return loops, stage if isinstance(stage, s_tir.SBlockRealize) else None


def _with_own_vars(stmt: Stmt, defined: list[Var]) -> Stmt:
    """Rename the variables a statement defines, so that another copy may stand beside it."""
    return substitute(stmt, {var: Var(var.name, str(var.ty)) for var in defined})


def _split(loops: list[For], realize: s_tir.SBlockRealize, main: int) -> tuple[Buffer, list[Stmt]]:
    block = realize.block
    axis = block.iter_vars[-1]
    loop = loops[-1]
    if (
        int(axis.iter_type) != IterVar.CommReduce
        or len(block.writes) != 1
        or len(loops) != len(block.iter_vars)
        or not realize.iter_values[-1].same_as(loop.loop_var)
    ):
        raise ValueError("the block is not a canonical reduction")
    axes = [each.var for each in block.iter_vars]
    length = int(axis.dom.extent)
    result = block.writes[0].source
    partial = tirx.decl_buffer(result.shape, str(result.dtype), f"{result.name}_main")
    kind = str(axis.dom.extent.ty)

    def part(
        steps: int, init: Stmt, swap: Callable[[object], object], suffix: str, extra: list[object]
    ) -> Stmt:
        extent = tirx.const(steps, kind)
        last = IterVar(Range(tirx.const(0, kind), extent), axis.var, IterVar.CommReduce)
        new_block = s_tir.SBlock(
            [*block.iter_vars[:-1], last],
            [*extra, *(swap(region) for region in block.reads)],
            [swap(region) for region in block.writes],
            f"{block.name_hint}{suffix}",
            swap(block.body),
            init,
            [],
            [],
            block.annotations,
        )
        stmt: Stmt = s_tir.SBlockRealize(realize.iter_values, realize.predicate, new_block)
        for outer in reversed(loops):
            size = extent if outer.same_as(loop) else outer.extent
            stmt = For(outer.loop_var, outer.min, size, outer.kind, stmt)
        return stmt

    def to_partial(node: object) -> object:
        return substitute(node, {result: partial})

    def to_tail(node: object) -> object:
        return substitute(node, {axis.var: axis.var + tirx.const(main, kind)})

    index = list(block.init.indices)
    start = tirx.BufferStore(result, tirx.BufferLoad(partial, index), index)
    first = part(main, to_partial(block.init), to_partial, "_main", [])
    reads_partial = tirx.BufferRegion(partial, [Range.from_min_extent(i, 1) for i in index])
    rest = part(length - main, start, to_tail, "", [reads_partial])
    return partial, [first, _with_own_vars(rest, [*(o.loop_var for o in loops), *axes])]
