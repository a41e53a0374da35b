"""What came of each case, on disk as it comes, so that a run which was killed goes on where it stopped."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from .cases import Case
from .skips import EXPECTED_FAILURE, Skip

#: Verdicts that need no explanation.
FINE = ("pass", "not_applicable")
UNEXPECTED_PASS = "unexpected_pass"


@dataclass(frozen=True)
class Result:
    """What came of one case; `outcome` is a verdict of the runner, `expected_failure` or `unexpected_pass`."""

    case: str
    outcome: str
    seconds: float
    #: See `attempts.Tally`.
    counts: dict[str, int] = field(default_factory=dict)
    #: How many attempts differed, and the first of them in words.
    differences: int = 0
    findings: tuple[str, ...] = ()
    #: Which line of the skip file the case ran under: its treatment and reason.
    treatment: str = ""
    reason: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome not in (*FINE, EXPECTED_FAILURE)

    @property
    def parsed(self) -> Case:
        return Case.parse(self.case)

    def text(self) -> str:
        return "\n".join([f"{self.case}: {self.outcome} ({self.differences} differences)", *self.findings])


def judge(verdict: str, skip: Skip | None, expected_differences: int, every_sample: bool) -> str:
    """The outcome of a case under its line of the skip file, of whose differences the line expects so many.

    Where only some samples were run, those that differ may not have been among them.
    """
    if skip is None or skip.treatment != EXPECTED_FAILURE or verdict not in FINE:
        return verdict
    if verdict == "pass":
        if expected_differences:
            return EXPECTED_FAILURE
        return UNEXPECTED_PASS if every_sample else verdict
    return verdict


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def conditions(**settings: Any) -> dict[str, Any]:
    """What results must have in common to stand in one table."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        **settings,
    }


class ResultFile:
    """A JSON Lines file: the conditions, then one result a line. One process writes it."""

    def __init__(self, path: Path, conditions: dict[str, Any], resume: bool) -> None:
        """Opens or begins the file. With `resume` its results are kept; ValueError if they do not belong here."""
        self.path = path
        self.results: dict[str, Result] = {}
        if resume and path.exists():
            self._read(conditions)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line that was cut off by the end of its writer is left out when the file is written anew.
        self._file = path.open("w")
        self._write(conditions)
        for result in self.results.values():
            self._write(asdict(result))

    def _read(self, conditions: dict[str, Any]) -> None:
        lines = self.path.read_text().splitlines()
        if not lines:
            return
        found = json.loads(lines[0])
        changed = [key for key in {*found, *conditions} if found.get(key) != conditions.get(key)]
        if changed:
            told = ", ".join(f"{key} {found.get(key)!r}, now {conditions.get(key)!r}" for key in changed)
            raise ValueError(f"{self.path} is from another run: {told}")
        for line in lines[1:]:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            self.results[row["case"]] = Result(**row | {"findings": tuple(row["findings"])})

    def _write(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def add(self, result: Result) -> None:
        self.results[result.case] = result
        self._write(asdict(result))

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """Conditions and results of a finished file."""
    first, *lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return json.loads(first), [Result(**row | {"findings": tuple(row["findings"])}) for row in rows]
