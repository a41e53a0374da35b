"""Runs one case: every sample, every attempt of its kind, and one verdict over all of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch_fl.survey import Verdict

from .attempts import Attempt, Question, Tally
from .cases import MODULES, OPERATORS, Case
from .compare import Finding, Places, describe_error
from .kinds import errors, gradients, inplace, layouts, leaks, meta, out, values
from .progress import Position, Progress
from .samples import Sample, make_samples
from .skips import EXPECTED_FAILURE, NOT_RUN, Skip, skip_of, strictness

ATTEMPTS: dict[str, Callable[[Case, Sample, int], Iterator[Attempt]]] = {
    "values": values.attempts,
    "layouts": layouts.attempts,
    "inplace": inplace.attempts,
    "out": out.attempts,
    "backward": gradients.attempts_of_order(1),
    "double_backward": gradients.attempts_of_order(2),
    "errors": values.attempts,
    "meta": meta.attempts,
    "leaks": leaks.attempts,
}
#: How many findings of a case are kept in words; all are counted.
FINDINGS_KEPT = 5


@dataclass
class Plan:
    """What all cases of a run have in common; forked workers inherit it."""

    cases: list[Case]
    places: Places = field(default_factory=Places)
    skips: list[Skip] = field(default_factory=list)
    #: At most so many samples of each case; None: all.
    samples: int | None = None
    #: (sample, attempt) that the reference does not survive, by case.
    deadly: dict[str, set[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.progress = Progress(len(self.cases))
        self.numbers = {str(case): number for number, case in enumerate(self.cases)}


def wants_gradients(case: Case, reference: str) -> bool:
    """Whether the inputs of the case are to require gradients."""
    if case.kind in ("backward", "double_backward") or case.name in MODULES:
        return True
    if case.kind not in ("layouts", "inplace", "leaks"):
        return False
    op = OPERATORS[case.name]
    return op.supports_autograd and case.torch_dtype in op.supported_backward_dtypes(reference)


def samples_of(case: Case, plan: Plan) -> list[Sample]:
    if case.kind == "errors":
        return errors.samples(case, plan.samples)
    return make_samples(case, requires_grad=wants_gradients(case, plan.places.reference), limit=plan.samples)


def run_case(name: str, plan: Plan) -> tuple[Verdict, str]:
    """Verdict and, as JSON, counts and findings of the case that `name` names."""
    case, number = Case.parse(name), plan.numbers[name]
    deadly = plan.deadly.get(name, set())
    skip = skip_of(case, plan.skips)
    values_mode = strictness(skip)
    tally, verdicts, expected = Tally(), [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, sample in enumerate(samples_of(case, plan)):
            tally.samples += 1
            for j, attempt in enumerate(ATTEMPTS[case.kind](case, sample, 100 + i)):
                if (i, j) in deadly or (skip is not None and skip.names(case, attempt.label, NOT_RUN)):
                    tally.reference_crashes += 1
                    continue

                def mark(on_device: bool, i: int = i, j: int = j) -> None:
                    plan.progress.mark(number, Position(i, j, on_device))

                try:
                    finding = attempt.check(Question(plan.places, values_mode, tally, mark))
                except Exception as error:  # noqa: BLE001  (a result that cannot even be compared is a finding)
                    finding = Finding("error", f"cannot be compared: {describe_error(error)}")
                if finding:
                    as_listed = skip is not None and skip.names(case, attempt.label, EXPECTED_FAILURE)
                    (expected if as_listed else verdicts).append(finding.verdict)
                    if len(tally.findings) < FINDINGS_KEPT:
                        tally.findings.append(f"sample {i}, {attempt.label}: {finding.text}\n    {sample.summary()}")
    found = {"findings": tally.findings, "differences": len(verdicts), "expected_differences": len(expected)}
    detail = tally.counts() | found
    if verdicts:
        return Verdict(verdicts[0]), json.dumps(detail)
    return Verdict("pass") if tally.compared else Verdict("not_applicable"), json.dumps(detail)
