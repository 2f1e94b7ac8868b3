"""Which operands lie in a concatenation's buffer, at which byte, and which are copied."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from relax_passes.memory.join_parts import join_parts
from relax_passes.memory.live_ranges import LiveRanges, analyze_live_ranges, bindings_of
from tests.relax_passes.lowered_modules import lowered

op = relax.op
ROW = 8 * 4  # bytes


class Joined:
    """A function with concatenations, joined: where each variable lies, what is copied."""

    def __init__(self, build: Callable[..., relax.Expr], *shapes: tuple[int, int]) -> None:
        self.names: dict[str, relax.Var] = {}
        func = _with_concats(build, self.names, *shapes)
        bindings = bindings_of(func)
        self.live: LiveRanges = analyze_live_ranges(bindings, func.body.body)
        self.copied = join_parts(bindings, self.live)

    def place(self, name: str) -> tuple[str, int]:
        """Return the concatenation whose buffer a variable lies in, and its row there."""
        (index,) = self.live.results[self.names[name]]
        root, shift = self.live.place_of(index)
        owners = {self.live.results[v][0]: n for n, v in self.names.items()}
        return owners[root], shift // ROW

    def copies(self, name: str) -> list[int]:
        return self.copied[self.names[name]]


def _with_concats(build, names: dict[str, relax.Var], *shapes) -> relax.Function:
    """Build with kernels as call_tir and concatenations as graph operators."""
    kernels = lowered(lambda e, *xs: [e(op.exp(x)) for x in xs], *shapes)
    builder = relax.BlockBuilder(kernels)
    calls = [b.value for b in bindings_of(kernels["main"]) if isinstance(b.value, relax.Call)]
    by_rows = {int(c.ty.shape[0]): c.args[0] for c in calls}
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]

    def make(name: str, x: relax.Expr) -> relax.Var:
        call = relax.op.call_tir(by_rows[int(x.ty.shape[0])], [x], out_ty=x.ty)
        names[name] = builder.emit(call, name)
        return names[name]

    def join(name: str, *parts: relax.Expr) -> relax.Var:
        names[name] = builder.emit(op.concat(list(parts), 0), name)
        return names[name]

    with builder.function("joined", params):
        with builder.dataflow():
            result = builder.emit_output(build(make, join, *params))
        builder.emit_func_output(result)
    return builder.get()["joined"]


def test_operands_lie_side_by_side_for_the_life_of_the_whole():
    def build(make, join, x, y, _):
        a, b = make("a", x), make("b", y)
        return make("last", join("c", a, b))

    found = Joined(build, (2, 8), (3, 8), (5, 8))
    assert found.copies("c") == []
    assert [found.place(name) for name in "abc"] == [("c", 0), ("c", 2), ("c", 0)]
    storage = found.live.storages[found.live.results[found.names["c"]][0]]
    assert (storage.lower, storage.upper) == (0, 4)


def test_a_dense_block_is_one_buffer():
    def build(make, join, x, *_):
        a = make("a", x)
        b = make("b", a)
        first = join("first", a, b)
        c = make("c", first)
        return make("last", join("second", a, b, c))

    found = Joined(build, (2, 8), (4, 8), (8, 8))
    assert found.copies("first") == found.copies("second") == []
    assert found.place("first") == ("second", 0)
    assert [found.place(name)[1] for name in "abc"] == [0, 2, 4]


def test_a_concatenation_is_an_operand_of_another():
    def build(make, join, x, y, *_):
        inner = join("inner", make("a", x), make("b", y))
        return make("last", join("outer", make("c", x), inner))

    found = Joined(build, (2, 8), (3, 8), (7, 8))
    assert [found.place(name) for name in "abc"] == [("outer", 2), ("outer", 4), ("outer", 0)]
    assert found.copies("inner") == found.copies("outer") == []


def test_an_operand_has_one_place():
    """b is behind a in the one and before a in the other: the smaller copies what does not fit."""

    def build(make, join, x, y, *_):
        a, b = make("a", x), make("b", y)
        one = join("one", a, b)
        other = join("other", b, a)
        return make("last", join("all", one, other))

    found = Joined(build, (2, 8), (3, 8), (10, 8))
    assert found.place("one") == ("all", 0) and found.place("other") == ("all", 5)
    assert sorted([found.copies("one"), found.copies("other")]) == [[], [0, 1]]


def test_inputs_and_second_operands_are_copied():
    def build(make, join, x, *_):
        a = make("a", x)
        return make("last", join("c", x, a, a))

    found = Joined(build, (2, 8), (6, 8))
    assert found.copies("c") == [0, 2] and found.place("a") == ("c", 2)


def test_what_is_returned_is_copied_and_a_returned_whole_is_not():
    def build(make, join, x, y):
        a, b = make("a", x), make("b", y)
        return relax.Tuple([join("c", a, b), a])

    found = Joined(build, (2, 8), (3, 8))
    assert found.copies("c") == [0] and found.place("b") == ("c", 2)


def test_nothing_is_placed_where_it_is_not_wanted():
    def build(make, join, x, y, _):
        return make("last", join("c", make("a", x), make("b", y)))

    names: dict[str, relax.Var] = {}
    func = _with_concats(build, names, (2, 8), (3, 8), (5, 8))
    bindings = bindings_of(func)
    live = analyze_live_ranges(bindings, func.body.body)
    assert join_parts(bindings, live, place=False)[names["c"]] == [0, 1]
    assert all(storage.host is None for storage in live.storages)
