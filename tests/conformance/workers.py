"""Run cases in worker processes that are replaced when a case hangs or kills them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.conformance.cases import Case
from tests.conformance.run_case import Outcome, run_case
from tests.worker_pool import Died, WorkerPool

_LIGHT_FACTOR = 5  # whole networks of up to 1,000 nodes


def run_cases(
    cases: Sequence[Case],
    workers: int,
    seconds: float,
    on_done: Callable[[Case, Outcome], None] = lambda case, outcome: None,
) -> dict[str, Outcome]:
    """Run cases and return the outcome of each by key.

    Args:
        cases: What to run; each is sent to a worker with its data.
        workers: Number of processes.
        seconds: Time-out of one case, longer for a whole network; its process is killed then.
        on_done: Called in this process after each case.
    """

    def limit(case: Case) -> float:
        return seconds * (_LIGHT_FACTOR if case.suite == "light" else 1)

    outcomes = {}
    with WorkerPool(run_case, min(workers, len(cases))) as pool:
        for case, answer in pool.run_all(cases, limit):
            outcome = Outcome("error", answer.reason) if isinstance(answer, Died) else answer
            outcomes[case.key] = outcome
            on_done(case, outcome)
    return {case.key: outcomes[case.key] for case in cases}
