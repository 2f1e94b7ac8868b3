"""Reuse that keeps branches independent: a buffer's bytes go only to a buffer that must come later.

In sequential order any buffer that is dead may be reused. If two branches are to run together, that
would make one wait for the other. Here two buffers may share bytes only if every step that touches
the one precedes, by data flow alone, the step that writes the other. Which pairs may is no longer
a matter of intervals, so buffers are placed one by one: those on the longest path first (by bytes;
along a path everything may be shared), then on the longest of what is left, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.relax import analysis as relax_analysis

from relax_passes.memory.greedy_offsets import first_fit
from relax_passes.memory.live_ranges import LiveRanges


@dataclass(frozen=True)
class DataFlow:
    """For each step the steps before it by data flow (bit i: step i), and each buffer's touches.

    `touched` maps a storage's index, results in place and parts counted to their host, to its steps
    in order, and `written` to the steps that write it.
    """

    before: tuple[int, ...]
    touched: dict[int, tuple[int, ...]]
    written: dict[int, tuple[int, ...]]

    def must_follow(self, first: int, second: int) -> bool:
        """Tell whether storage `second` is written after all that touches `first`, in any order."""
        return all(
            self.before[writer] >> step & 1
            for writer in self.written[second]
            for step in self.touched[first]
        )

    def conflict(self, one: int, other: int) -> bool:
        """Tell whether two storages may be alive at once in some order that data flow allows."""
        return not (self.must_follow(one, other) or self.must_follow(other, one))


def analyze_data_flow(bindings: Sequence[relax.Binding], live: LiveRanges) -> DataFlow:
    """Compute what each step depends on, from the storages that its value reads."""
    before: list[int] = []
    touched: dict[int, list[int]] = {}
    written: dict[int, list[int]] = {}
    writers: dict[int, int] = {}  # of each storage, parts and results in place on their own
    defined: dict[relax.Expr, int] = {}  # views read a buffer too, and what uses them comes later
    for step, binding in enumerate(bindings):
        read = live.of(binding.value)
        own = live.results.get(binding.var, ())
        needs = {defined[var] for var in relax_analysis.free_vars(binding.value) if var in defined}
        needs.update(writers[index] for index in read if index in writers)
        mask = 0
        for earlier in needs:
            mask |= before[earlier] | 1 << earlier
        before.append(mask)
        defined[binding.var] = step
        for host in {live.host_of(index) for index in (*read, *own)}:
            touched.setdefault(host, []).append(step)
        for index in own:
            writers[index] = step
            written.setdefault(live.host_of(index), []).append(step)
    steps = ({host: tuple(of) for host, of in found.items()} for found in (touched, written))
    return DataFlow(tuple(before), *steps)


def may_overwrite(live: LiveRanges, flow: DataFlow) -> Callable[[int, int], bool]:
    """Return a test of a host storage and a step: whether all that touches it precedes the step.

    Args:
        live: Where results in place are being entered; asked at each test.
        flow: The data flow before any result was put in place.
    """

    def test(host: int, step: int) -> bool:
        members = (i for i in range(len(live.storages)) if live.host_of(i) == host)
        touches = (s for member in members for s in flow.touched.get(member, ()))
        return all(s == step or flow.before[step] >> s & 1 for s in touches)

    return test


def place_longest_path_first(
    indices: Sequence[int], sizes: Sequence[int], flow: DataFlow
) -> list[int]:
    """Return an offset for each buffer, so that none shares bytes with one it conflicts with.

    Args:
        indices: The storages to place, as `flow` knows them.
        sizes: Bytes of each, already padded to the alignment.
        flow: What precedes what.
    """
    count = len(indices)
    follows = [
        [k for k in range(count) if flow.must_follow(indices[k], indices[i])] for i in range(count)
    ]
    order = _by_longest_path(sizes, follows)
    by_size = sorted(range(count), key=lambda i: -sizes[i])
    plans = []
    for sequence in (order, by_size):
        offsets = [-1] * count
        for i in sequence:
            taken = sorted(
                (offsets[k], offsets[k] + sizes[k])
                for k in range(count)
                if offsets[k] >= 0 and flow.conflict(indices[i], indices[k])
            )
            offsets[i] = first_fit(taken, sizes[i])
        plans.append(offsets)
    return min(plans, key=lambda plan: max(map(sum, zip(plan, sizes, strict=True)), default=0))


def _by_longest_path(sizes: Sequence[int], follows: Sequence[Sequence[int]]) -> list[int]:
    """Peel off the heaviest chain of buffers, again and again."""
    left = list(range(len(sizes)))  # in program order: what a buffer follows stands before it
    order: list[int] = []
    while left:
        weight: dict[int, int] = {}
        previous: dict[int, int | None] = {}
        for i in left:
            best = max((k for k in follows[i] if k in weight), key=weight.__getitem__, default=None)
            previous[i] = best
            weight[i] = sizes[i] + (weight[best] if best is not None else 0)
        step: int | None = max(left, key=weight.__getitem__)
        path = set()
        while step is not None:
            path.add(step)
            step = previous[step]
        order += sorted(path, key=lambda i: -sizes[i])
        left = [i for i in left if i not in path]
    return order
