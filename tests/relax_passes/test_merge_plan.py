"""Parts of a merged tensor lie one after the other and together are the whole of it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from relax_passes.merge_plan import MergePlan


@dataclass(frozen=True)
class Member:
    result: relax.Var
    width: int
    inner: tuple[relax.Var, ...] = ()


def variable(name: str, *shape: int) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, "float32"))


def test_parts_follow_each_other() -> None:
    inner, a, b = variable("inner", 4, 3), variable("a", 4, 3), variable("b", 4, 5)
    plan: MergePlan[Member] = MergePlan()
    plan.take([Member(a, 3, (inner,)), Member(b, 5)])
    assert [(p.begin, p.end) for p in (plan.parts[a], plan.parts[b])] == [(0, 3), (3, 8)]
    assert plan.absorbed == {inner}
    assert plan.groups == 1


def test_each_group_begins_at_zero() -> None:
    a, b = variable("a", 4, 3), variable("b", 4, 5)
    plan: MergePlan[Member] = MergePlan()
    plan.take([Member(a, 3)])
    plan.take([Member(b, 5)])
    assert plan.parts[b].begin == 0
    assert plan.groups == 2


def test_a_part_is_cut_along_the_merged_axis() -> None:
    a, b, whole = variable("a", 4, 3), variable("b", 4, 5), variable("whole", 4, 8)
    plan: MergePlan[Member] = MergePlan()
    plan.take([Member(a, 3), Member(b, 5)])
    cut = relax.BlockBuilder().normalize(plan.parts[b].cut_from(whole, 1))
    assert [int(size) for size in cut.ty.shape.values] == [4, 5]
