"""One question to a sample, asked on the reference and on the device, and what the answers were counted as."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .compare import BITS, DESCRIPTION, TOLERANCE, Finding, Places, compare
from .runs import Run

#: How often the device is asked again when it differs.
REPEATS = 2
#: What fills unwritten memory when the reference is asked again; as floating-point numbers 0.5 or so, and very large.
PATTERNS = (0x3F, 0x7E, 0x3F)
#: The parameter of glibc's mallopt that sets it.
M_PERTURB = -6


@dataclass
class Tally:
    """What became of the attempts of one case."""

    samples: int = 0
    #: Answers compared, refusals by both included.
    compared: int = 0
    both_refuse: int = 0
    #: The reference gave two answers to the same question; compared within the tolerance.
    nondeterministic_reference: int = 0
    #: The reference's answers are further apart than that: memory that nobody wrote. Compared but for values.
    undefined_reference: int = 0
    #: PyTorch's own description of a result is wrong on the reference as well (kind `meta`).
    reference_disagrees: int = 0
    #: The reference died of the question, so the device was not asked.
    reference_crashes: int = 0
    findings: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if isinstance(value, int) and value}


@dataclass(frozen=True)
class Question:
    """What all attempts of a case share."""

    places: Places
    #: How strictly values are compared.
    values: str
    tally: Tally
    #: Told before each run whether it is the device's; the record outlives a crash.
    mark: Callable[[bool], None] = lambda on_device: None


@dataclass(frozen=True)
class Attempt:
    """A named check; `check(question)` returns the difference it found, or None."""

    label: str
    check: Callable[[Question], Finding | None]


@contextmanager
def unwritten_memory(pattern: int) -> Iterator[None]:
    """Memory given out meanwhile is filled with `pattern`, so that what nobody writes shows; with glibc only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_PERTURB, pattern ^ 0xFF)
    try:
        yield
    finally:
        if mallopt is not None:
            mallopt(M_PERTURB, 0)


def judge_anew(
    execute: Callable[[str], Run], question: Question, first: Run, actual: Run, finding: Finding
) -> Finding | None:
    """What to make of a difference: nothing, if the reference contradicts itself as much."""
    places, tally = question.places, question.tally
    question.mark(False)
    repeats = []
    for pattern in PATTERNS:
        with unwritten_memory(pattern):
            repeats.append(execute(places.reference))
    at_home = Places(places.reference, places.reference)
    if any(compare(again, first, at_home) for again in repeats):
        if any(compare(again, first, at_home, TOLERANCE) for again in repeats):
            tally.undefined_reference += 1
            return compare(actual, first, places, DESCRIPTION)
        tally.nondeterministic_reference += 1
        return compare(actual, first, places, TOLERANCE)
    question.mark(True)
    for _ in range(REPEATS):
        change = compare(execute(places.device), actual, Places(places.device, places.device))
        if change and first.error is None and actual.error is None:
            return Finding("nondeterministic", f"{finding.text}; and with itself: {change.text}")
    return finding


def two_runs(execute: Callable[[str], Run]) -> Callable[[Question], Finding | None]:
    """The check that `execute(place)` does on the device what it does on the reference.

    If not, both are asked again: who contradicts himself is not deterministic. A reference that does is compared within
    a tolerance.
    """

    def check(question: Question) -> Finding | None:
        places, tally = question.places, question.tally
        question.mark(False)
        expected = execute(places.reference)
        question.mark(True)
        actual = execute(places.device)
        tally.compared += 1
        finding = compare(actual, expected, places, question.values)
        if expected.error is not None and finding is None:
            tally.both_refuse += 1
        if finding is None or question.values != BITS:
            return finding
        return judge_anew(execute, question, expected, actual, finding)

    return check
