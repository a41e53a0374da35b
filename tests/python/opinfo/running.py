"""Runs cases in isolated workers, several rounds if the reference itself dies of some sample, and keeps the results."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable

import torch

from torch_fl.survey import Outcome, Verdict, run_isolated

from .harness import Plan, run_case
from .results import Result, judge
from .skips import skip_of

#: Rounds after which a case whose reference still dies is given up.
MOST_ROUNDS = 20
#: How much of what a worker wrote is kept with a case that failed.
OUTPUT_KEPT = 4000


def set_up() -> None:
    """Prepares a worker: one thread, so that the reference repeats its sums; nothing said about known deprecations."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    torch.set_warn_always(True)  # a warning that PyTorch gives once would be given to one of two runs


def result_of(outcome: Outcome, plan: Plan) -> Result:
    """The runner's outcome as a result: counts and findings from the body, or what killed the worker."""
    case = plan.cases[plan.numbers[outcome.case]]
    skip = skip_of(case, plan.skips)
    told = {"treatment": skip.treatment, "reason": skip.reason} if skip else {}
    expected = 0
    try:
        detail = json.loads(outcome.detail)
        findings, differences = tuple(detail.pop("findings")), detail.pop("differences")
        expected = detail.pop("expected_differences")
    except (ValueError, KeyError, AttributeError, TypeError):
        position = plan.progress.last(plan.numbers[outcome.case])
        ends = [outcome.detail, outcome.stderr[-OUTPUT_KEPT:]]
        detail, differences = {}, 1
        findings = (f"{position}, signal {outcome.signal}: " + "\n".join(end for end in ends if end),)
    judged = judge(outcome.verdict.value, skip, expected, plan.samples is None)
    return Result(outcome.case, judged, round(outcome.seconds, 4), detail, differences, findings, **told)


def run_cases(
    plan: Plan, names: list[str], on_result: Callable[[Result], None], *, workers: int, timeout_seconds: float
) -> None:
    """Runs the cases of `plan` that are named; calls `on_result` once for each, in order of completion.

    A case whose reference crashes is run again without the sample it crashed at, which is counted.
    """
    # Workers look for garbage among their own objects only, and share the pages of all others.
    gc.collect()
    gc.freeze()
    for _ in range(MOST_ROUNDS):
        again = []

        def hear(outcome: Outcome, again: list[str] = again) -> None:
            position = plan.progress.last(plan.numbers[outcome.case])
            if outcome.verdict is Verdict.CRASH and position is not None and not position.on_device:
                plan.deadly.setdefault(outcome.case, set()).add((position.sample, position.attempt))
                again.append(outcome.case)
            else:
                on_result(result_of(outcome, plan))

        run_isolated(
            names,
            lambda name: run_case(name, plan),
            hear,
            workers=workers,
            timeout_seconds=timeout_seconds,
            set_up=set_up,
        )
        names = again
        if not names:
            return
    raise RuntimeError(f"the reference dies of more than {MOST_ROUNDS} samples each of {names}")
