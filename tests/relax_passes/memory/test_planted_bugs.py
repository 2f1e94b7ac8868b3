"""The verifier against planned functions with one alias bug each: it must name every one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.ir import Call

from relax_passes.memory.verify_offsets import OverlapError
from relax_passes.memory.verify_plan import verify_plan

F32 = "float32"
SIZE = 64  # elements: 256 bytes


class Planned:
    """Writes a planned function by hand: an arena, tensors at offsets, kernels for effect."""

    def __init__(self, arena_bytes: int = 1024) -> None:
        self.builder = relax.BlockBuilder()
        self.x = relax.Var("x", relax.TensorType((SIZE,), F32))
        self._arena_bytes = arena_bytes

    def build(self, body: Callable[[Planned], relax.Expr]) -> tvm.IRModule:
        params = [self.x]
        with self.builder.function("main", params, attrs={"relax.force_pure": True}):
            shape = relax.ShapeExpr([self._arena_bytes])
            storage = relax.op.memory.alloc_storage(shape, 0, "global", "uint8")
            self.arena = self.builder.emit(storage, "arena")
            self.builder.emit_func_output(body(self))
        return self.builder.get()

    def tensor(self, offset: int, name: str) -> relax.Var:
        tensor = relax.op.memory.alloc_tensor(self.arena, offset, relax.ShapeExpr([SIZE]), F32)
        return self.builder.emit(tensor, name)

    def output(self) -> relax.Var:
        shape = relax.ShapeExpr([SIZE])
        return self.builder.emit(relax.op.builtin.alloc_tensor(shape, F32, 0, "global"), "out")

    def kernel(self, *args: relax.Expr) -> None:
        """Sum all arguments but the last into the last."""
        inputs = [te.placeholder((SIZE,), F32) for _ in args[:-1]]
        total = te.compute((SIZE,), lambda i: sum((t(i) for t in inputs), tirx.const(1.0, F32)))
        func = te.create_prim_func([*inputs, total]).without_attr("global_symbol")
        self.builder.emit(Call(self.builder.add_func(func, "add"), list(args)), "_")

    def negate(self, arg: relax.Expr, *others: relax.Expr) -> None:
        """Overwrite the first argument by its sum with the others."""
        inputs = [te.placeholder((SIZE,), F32) for _ in [arg, *others]]
        total = te.compute((SIZE,), lambda i: -sum((t(i) for t in inputs[1:]), inputs[0](i)))
        func = te.create_prim_func([*inputs, total]).without_attr("global_symbol")
        *params, out = func.params
        replace = (tirx.Var, lambda v: params[0] if v.same_as(out) else v)
        from tvm_ffi import structural_map

        func = tirx.PrimFunc(params, structural_map(func.body, replace))
        self.builder.emit(Call(self.builder.add_func(func, "negate"), [arg, *others]), "_")

    def reverse(self, arg: relax.Expr, out: relax.Expr) -> None:
        """Write the elements of the first argument in reverse order: no kernel for one buffer."""
        given = te.placeholder((SIZE,), F32)
        turned = te.compute((SIZE,), lambda i: given(SIZE - 1 - i))
        func = te.create_prim_func([given, turned]).without_attr("global_symbol")
        self.builder.emit(Call(self.builder.add_func(func, "reverse"), [arg, out]), "_")

    def view(self, arg: relax.Expr, name: str) -> relax.Var:
        return self.builder.emit(relax.op.reshape(arg, (SIZE,)), name)


def chain(p: Planned, offsets: tuple[int, int], late: Callable[[relax.Var], relax.Expr]):
    """Write a, then b, then read what `late` makes of a beside b."""
    a = p.tensor(offsets[0], "a")
    p.kernel(p.x, a)
    alias = late(a)
    b = p.tensor(offsets[1], "b")
    p.kernel(p.x, b)
    out = p.output()
    p.kernel(alias, b, out)
    return out


def same_offset(p):
    return chain(p, (0, 0), lambda a: a)


def partial_overlap(p):
    return chain(p, (0, 192), lambda a: a)


def view_outlives(p):
    return chain(p, (64, 64), lambda a: p.view(a, "v"))


def cast_outlives(p):
    return chain(
        p, (0, 0), lambda a: p.builder.match_cast(a, relax.TensorType((SIZE,), F32), "cast")
    )


def tuple_outlives(p):
    def hold(a):
        pair = p.builder.emit(relax.Tuple([p.x, a]), "pair")
        return p.builder.emit(relax.TupleGetItem(pair, 1), "second")

    return chain(p, (0, 0), hold)


def outside_the_arena(p):
    return chain(p, (0, 832), lambda a: a)


def misaligned(p):
    return chain(p, (0, 260), lambda a: a)


def returned(p):
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    return p.view(a, "v")


def read_before_written(p):
    a, out = p.tensor(0, "a"), p.output()
    p.kernel(p.x, a, out)
    return out


def old_name_read_after_overwrite(p):
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    old = p.view(a, "old")
    p.negate(a)
    out = p.output()
    p.kernel(a, old, out)
    return out


def overwritten_and_read_at_once(p):
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    old = p.view(a, "old")
    p.negate(a, old)
    out = p.output()
    p.kernel(a, out)
    return out


def overwrites_a_live_neighbour(p):
    """A result in place prolongs a tensor's life into that of one at the same bytes."""
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    b = p.tensor(128, "b")
    p.kernel(a, b)
    p.negate(a)
    out = p.output()
    p.kernel(a, b, out)
    return out


def given_to_a_packed_function(p):
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    call = relax.op.call_pure_packed("f", a, ty_args=relax.TensorType((SIZE,), F32))
    return p.builder.emit(call)


def two_parts(p, offsets: tuple[int, int], kernels: int = 2):
    """Write two parts of one buffer, then read all of it."""
    size = relax.ShapeExpr([SIZE])
    whole = p.builder.emit(
        relax.op.memory.alloc_tensor(p.arena, 0, relax.ShapeExpr([2, SIZE]), F32), "whole"
    )
    for number, offset in enumerate(offsets[:kernels]):
        part = p.builder.emit(relax.op.memory.view(whole, size, F32, offset), f"part{number}")
        p.kernel(p.x, part)
    out = p.output()
    read = p.builder.emit(relax.op.memory.view(whole, size, F32, 128), "read")
    p.kernel(read, out)
    return out


def parts_overlap(p):
    return two_parts(p, (0, 128))


def part_is_never_written(p):
    return two_parts(p, (0, 256), kernels=1)


def slice_outlives(p):
    def cut(a):
        return p.builder.emit(relax.op.memory.view(a, relax.ShapeExpr([SIZE]), F32, 0), "cut")

    return chain(p, (0, 128), cut)


def reverse_two_names(p):
    """Two tensors at the same bytes, the one dead where the other is written: no result in place.

    This is what a planner makes whose live ranges end one step too early.
    """
    a = p.tensor(0, "a")
    p.kernel(p.x, a)
    b, out = p.tensor(0, "b"), p.output()
    p.reverse(a, b)
    p.kernel(b, out)
    return out


def write_into_input(p):
    p.kernel(p.x, p.x)
    return copied(p, p.x)


def over_input(p):
    p.negate(p.x)
    return copied(p, p.x)


def stale_input(p):
    old = p.view(p.x, "old")
    p.negate(old)
    return copied(p, p.x)


def over_constant(p):
    constant = relax.const(np.zeros(SIZE, F32))
    p.negate(constant)
    return copied(p, constant)


def over_view_of_constant(p):
    constant = relax.const(np.zeros(SIZE, F32))
    p.negate(p.view(constant, "old"))
    return copied(p, constant)


def over_constant_in_a_tuple(p):
    pair = p.builder.emit(relax.Tuple([p.x, relax.const(np.zeros(SIZE, F32))]), "pair")
    second = p.builder.emit(relax.TupleGetItem(pair, 1), "second")
    p.negate(second)
    return copied(p, second)


def copied(p, tensor):
    out = p.output()
    p.kernel(tensor, out)
    return out


BUGS = {
    reverse_two_names: "a .* and b .* share bytes from 0",
    write_into_input: "a kernel writes over parameter x",
    over_input: "a kernel writes over parameter x",
    stale_input: "a kernel writes over parameter x",
    over_constant: "a kernel writes over a constant",
    over_view_of_constant: "a kernel writes over a constant",
    over_constant_in_a_tuple: "a kernel writes over",
    same_offset: "a .* and b .* share bytes",
    partial_overlap: "share bytes from 192",
    view_outlives: "share bytes from 64",
    cast_outlives: "share bytes",
    tuple_outlives: "share bytes",
    outside_the_arena: "b at 832 is misaligned or outside",
    misaligned: "b at 260 is misaligned",
    returned: "a lies in the arena but is returned",
    read_before_written: "a is read before it is written",
    old_name_read_after_overwrite: "a is read as old after it was overwritten as a",
    overwritten_and_read_at_once: "overwrites a and reads it as another argument",
    overwrites_a_live_neighbour: "a .* and b .* share bytes from 128",
    parts_overlap: "whole is read as whole after it was overwritten as part1",
    part_is_never_written: "whole is read before it is written",
    slice_outlives: "a .* and b .* share bytes from 128",
    given_to_a_packed_function: "a lies in the arena but leaves it",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_planted_alias_bug_is_caught(bug):
    mod = Planned().build(bug)
    with pytest.raises(OverlapError, match=BUGS[bug]):
        verify_plan(mod["main"], mod)


def test_the_same_function_without_a_bug_passes():
    def correct(p):
        return chain(p, (0, 256), lambda a: p.view(a, "v"))

    def in_place(p):
        a = p.tensor(0, "a")
        p.kernel(p.x, a)
        p.view(a, "unused")
        p.negate(a)
        out = p.output()
        p.kernel(a, out)
        return out

    def constant_beside(p):
        a = p.tensor(0, "a")
        p.kernel(p.view(relax.const(np.zeros(SIZE, F32)), "zero"), p.view(p.x, "v"), a)
        p.negate(a, relax.const(np.ones(SIZE, F32)), p.x)
        return copied(p, a)

    def parts(p):
        return two_parts(p, (0, 256))

    for body in (correct, in_place, constant_beside, parts):
        mod = Planned().build(body)
        verify_plan(mod["main"], mod)
