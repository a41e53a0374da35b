"""The results as a table: kinds of test × outcomes in sums, then every operator that has something to tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from .cases import KINDS, MODULES, OPERATORS, dtypes_of_operator
from .skips import EXPECTED_FAILURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .results import Result
    from .skips import Skip

#: Counted over the samples of all cases of a kind.
COUNTS = {
    "samples": "samples",
    "compared": "comparisons",
    "both_refuse": "both refuse",
    "nondeterministic_reference": "nondeterministic reference",
    "undefined_reference": "undefined reference",
    "reference_disagrees": "reference disagrees too",
    "reference_crashes": "reference crashes",
}


def markdown(header: list[str], rows: Iterable[list[Any]]) -> list[str]:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' + '---:|' * (len(header) - 1)}"]
    for row in rows:
        cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def summary(results: list[Result]) -> list[str]:
    """Kinds of test against outcomes of cases and counts of samples."""
    outcomes = sorted({result.outcome for result in results})
    by_kind = {kind: [r for r in results if r.parsed.kind == kind] for kind in KINDS}
    header = ["kind", "operators", "modules", "cases", *outcomes, *COUNTS.values()]
    rows = []
    for kind, found in [*by_kind.items(), ("all", results)]:
        names = {result.parsed.name for result in found}
        numbers = Counter(result.outcome for result in found)
        sums = [sum(result.counts.get(name, 0) for result in found) for name in COUNTS]
        places = [len(names & OPERATORS.keys()), len(names & MODULES.keys())]
        rows.append([kind, *places, len(found), *(numbers[o] for o in outcomes), *sums])
    return markdown(header, rows)


def by_operator(results: list[Result]) -> list[str]:
    """Every operator and module against the kinds: cases that passed of those that ran, failures in bold."""
    cells: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        cells[result.parsed.name][result.parsed.kind].append(result)

    def cell(found: list[Result]) -> str:
        if not found:
            return ""
        failed = sum(result.failed for result in found)
        skipped = sum(result.outcome == EXPECTED_FAILURE for result in found)
        text = str(len(found) - failed - skipped)
        text += f" +{skipped} skipped" if skipped else ""
        return text + (f" **{failed} failed**" if failed else "")

    names = [name for name in (*OPERATORS, *MODULES) if name in cells]
    return markdown(["operator", *KINDS], [[f"`{n}`", *(cell(cells[n][kind]) for kind in KINDS)] for n in names])


def skipped(results: list[Result], skips: list[Skip]) -> list[str]:
    rows = []
    for skip in skips:
        under = [result for result in results if skip.covers(result.parsed)]
        rows.append([f"`{skip.name}`", " ".join(skip.kinds), skip.treatment, skip.reason, len(under)])
    return markdown(["operator", "kinds", "treatment", "reason", "cases"], rows) if rows else ["None."]


def failures(results: list[Result], most: int = 100) -> list[str]:
    found = [result for result in results if result.failed]
    lines = [line for result in found[:most] for line in ("```", result.text(), "```")]
    return lines + ([f"… and {len(found) - most} more"] if len(found) > most else [])


def document(conditions: dict[str, Any], results: list[Result], skips: list[Skip], date: str) -> str:
    """The whole table as Markdown."""
    order = {name: number for number, name in enumerate((*OPERATORS, *MODULES))}
    results = sorted(results, key=lambda r: (order[r.parsed.name], KINDS.index(r.parsed.kind), r.parsed.dtype))
    failed = sum(result.failed for result in results)
    expected = sum(result.outcome == EXPECTED_FAILURE for result in results)
    relaxed = sum(bool(result.treatment) for result in results) - expected
    names = {result.parsed.name for result in results}
    untold = [f"`{n}`" for n in OPERATORS if not dtypes_of_operator(n, "values", conditions["reference"])]
    told = "".join(f"| {key} | {value} |\n" for key, value in conditions.items() if value is not None)
    return "\n".join(
        [
            f"# PyTorch's operator and module tables on the accelerator {conditions['accelerator']}, {date}",
            "",
            "Made by `make test-full`; tests/python/opinfo says what is compared. Values are compared bit for bit.",
            "",
            "| condition | |\n|---|---|",
            told,
            f"{len(names & OPERATORS.keys())} of {len(OPERATORS)} operators and {len(names & MODULES.keys())} of "
            f"{len(MODULES)} modules; {len(results):,} cases: {failed} failed, {expected} expected failures, {relaxed} "
            f"compared in all but bits; {sum(r.counts.get('samples', 0) for r in results):,} samples, "
            f"{sum(r.counts.get('compared', 0) for r in results):,} comparisons, "
            f"{sum(r.seconds for r in results):,.0f} s of work.",
            *(["", f"The table claims no dtype on the reference for {', '.join(untold)}."] if untold else []),
            "",
            "## Kinds of test",
            "",
            *summary(results),
            "",
            "*both refuse*: the reference raises, and the device raises the same type. *nondeterministic "
            "reference*: the reference did not repeat its own bits; compared within a tolerance. *undefined "
            "reference*: it returned memory that it had not written; compared but for values. *reference disagrees "
            "too*: fake or meta tensors describe the result wrongly, and those of the reference in the same way. "
            "*reference crashes*: the reference died of the sample or wrote past its memory, so the device was not "
            "asked. A case of no sample that applies is "
            "not_applicable.",
            "",
            "## Not held to the bit",
            "",
            *skipped(results, skips),
            "",
            "## Failures",
            "",
            *(failures(results) or ["None."]),
            "",
            "## Operators and modules",
            "",
            "Cases (dtypes) that passed.",
            "",
            *by_operator(results),
            "",
        ]
    )
