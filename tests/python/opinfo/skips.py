"""The file of cases that are not held to the bit: each line names one operator, what of it, and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cases import Case
from .compare import BITS, DESCRIPTION, TOLERANCE

FOLDER = Path(__file__).parent
MOST_LINES = 25
#: What a line may ask for. `expected_failure` runs, and must fail; `not_run` is for attempts that destroy the process's
#: memory on the reference too; the others relax how values are compared.
EXPECTED_FAILURE = "expected_failure"
NOT_RUN = "not_run"
TREATMENTS = (EXPECTED_FAILURE, NOT_RUN, DESCRIPTION, TOLERANCE)


@dataclass(frozen=True)
class Skip:
    """One line: `name | kinds | dtypes | treatment | reason`.

    A kind may be narrowed to attempts, as in `layouts:negative`; the other attempts of the case must agree then.
    """

    name: str
    kinds: tuple[str, ...]
    dtypes: tuple[str, ...]
    treatment: str
    reason: str

    def covers(self, case: Case) -> bool:
        kinds = [kind.partition(":")[0] for kind in self.kinds]
        return case.name == self.name and case.kind in kinds and case.dtype in self.dtypes

    def names(self, case: Case, label: str, treatment: str) -> bool:
        """Whether the line gives that treatment to the attempt `label` of a case that it covers."""
        attempts = [attempt for kind, _, attempt in (k.partition(":") for k in self.kinds) if kind == case.kind]
        return self.treatment == treatment and ("" in attempts or label.split(",")[0] in attempts)


def parse(text: str) -> list[Skip]:
    """The lines of a skip file; ValueError with the line if it has another form. `#` begins a comment line."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 5 or not all(parts) or parts[3] not in TREATMENTS:
            raise ValueError(f"not 'name | kinds | dtypes | treatment of {TREATMENTS} | reason': {line}")
        name, kinds, dtypes, treatment, reason = parts
        found.append(Skip(name, tuple(kinds.split()), tuple(dtypes.split()), treatment, reason))
    return found


def read(accelerator: str) -> list[Skip]:
    """The lines of `skips_<accelerator>.txt`; none if there is no such file."""
    path = FOLDER / f"skips_{accelerator}.txt"
    return parse(path.read_text()) if path.exists() else []


def skip_of(case: Case, skips: list[Skip]) -> Skip | None:
    return next((skip for skip in skips if skip.covers(case)), None)


def strictness(skip: Skip | None) -> str:
    """How the values of a case with that line, or with none, are compared."""
    return BITS if skip is None or skip.treatment in (EXPECTED_FAILURE, NOT_RUN) else skip.treatment
