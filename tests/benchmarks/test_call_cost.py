"""Where a call's time goes: functions within functions are timed by name."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks import call_cost  # noqa: E402


def test_a_stopwatch_keeps_the_last_call_of_each_and_what_marks_a_function() -> None:
    watch = call_cost.Stopwatch()

    def inner(value: int) -> int:
        return value + 1

    inner._boxed_call = True  # type: ignore[attr-defined]
    timed = watch.timed("inner", inner)
    outer = watch.timed("outer", lambda value: timed(value) * 2)
    assert timed._boxed_call and outer(3) == 8  # type: ignore[attr-defined]
    assert 0 < watch.seconds["inner"] < watch.seconds["outer"]


def test_parts_add_up_to_the_difference() -> None:
    taken = {"whole": 100.0, "backend": 70.0, "plan": 60.0, "function": 40.0, "direct": 55.0}
    cells = call_cost._cells({**{k: [v, v] for k, v in taken.items()}, "bare": [30.0, 30.0]})
    whole, direct, difference, _, dynamo, aot, plan, function, call, bare = map(float, cells)
    assert dynamo + aot + plan + function == whole and call + bare == direct
    assert difference == whole - direct
