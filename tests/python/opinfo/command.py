"""The command line of the harness (python -m opinfo): chooses cases, runs them in workers, tells what came of them.

Exit status: 0 nothing unexplained, 1 at least one failure, 2 wrong use.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from pathlib import Path

import torch

from opinfo import results as stored
from opinfo import skips as skip_file
from opinfo import table
from opinfo.cases import KINDS, Case, all_cases, shard
from opinfo.compare import Places
from opinfo.harness import Plan
from opinfo.results import Result, ResultFile
from opinfo.running import run_cases
from opinfo.slice import SAMPLES, slice_cases

ROOT = Path(__file__).parents[3]


def parse_shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard such as 1/10")
    return int(number), int(count)


def parser() -> argparse.ArgumentParser:
    example = "Example: python -m opinfo --only 'nn.functional.*' --kind backward --workers 2"
    made = argparse.ArgumentParser(
        prog="python -m opinfo", description=__doc__.splitlines()[0], epilog=example, allow_abbrev=False
    )
    made.add_argument(
        "--only", nargs="+", metavar="PATTERN", help="operators, modules or whole case ids; * and ? as in a shell"
    )
    made.add_argument(
        "--only-from", type=Path, metavar="FILE", help="names of operators and modules, one a line, no patterns"
    )
    made.add_argument("--kind", nargs="+", choices=KINDS, help="kinds of test (all)")
    made.add_argument("--slice", action="store_true", help="every operator and kind, few dtypes and samples")
    made.add_argument(
        "--samples", type=int, metavar="N", help=f"at most N samples of each case (all; with --slice {SAMPLES})"
    )
    made.add_argument("--shard", type=parse_shard, metavar="I/N", help="every N-th case, from the I-th on")
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    made.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for one case (%(default)s)")
    made.add_argument("--reference", default="cpu", help="device that gives the expected results (%(default)s)")
    made.add_argument("--device", default="flagos", help="device under test (%(default)s)")
    made.add_argument(
        "--results", type=Path, default=ROOT / "build" / "opinfo.jsonl", help="where results go (%(default)s)"
    )
    made.add_argument(
        "--resume", action="store_true", help="go on with a run that was stopped; its results move aside at the end"
    )
    made.add_argument("--write", action="store_true", help="write bench/results/opinfo-<accelerator>-<date>.md")
    made.add_argument("--list", action="store_true", help="print the cases and run none")
    return made


def matches(case: Case, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, p) for text in (case.name, str(case)) for p in patterns)


def choose(options: argparse.Namespace) -> list[Case]:
    """The cases that the options ask for."""
    found = slice_cases(options.reference) if options.slice else list(all_cases(options.reference))
    if options.only:
        found = [case for case in found if matches(case, options.only)]
    if options.only_from:
        names = set(options.only_from.read_text().split())
        found = [case for case in found if case.name in names]
    if options.kind:
        found = [case for case in found if case.kind in options.kind]
    return shard(found, *options.shard) if options.shard else found


class Telling:
    """Progress: a bar on a terminal, else a line every minute; failures as they come."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.failed = total, done, 0
        self.begun = self.told = time.monotonic()
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=done, unit="case", smoothing=0.02)

    def tell(self, result: Result) -> None:
        self.done += 1
        self.failed += result.failed
        if result.failed:
            first = result.findings[0] if result.findings else ""
            line = f"{result.outcome:10} {result.case}: {first[:400]}"
            self.bar.write(line) if self.bar else print(line, flush=True)
        if self.bar:
            self.bar.update()
        elif time.monotonic() - self.told > 60:
            self.told = time.monotonic()
            seconds = self.told - self.begun
            print(f"{self.done:,} of {self.total:,} cases, {self.failed} failed, {seconds:.0f} s", flush=True)

    def end(self) -> None:
        if self.bar:
            self.bar.close()


def run(options: argparse.Namespace, cases: list[Case], accelerator: str) -> int:
    skips = skip_file.read(accelerator)
    samples = options.samples if options.samples is not None else SAMPLES if options.slice else None
    conditions = stored.conditions(
        accelerator=accelerator,
        reference=options.reference,
        device=options.device,
        samples="all" if samples is None else f"at most {samples} a case",
    )
    file = ResultFile(options.results, conditions, options.resume)
    plan = Plan(cases, Places(options.reference, options.device), skips, samples)
    left = [str(case) for case in cases if str(case) not in file.results]
    telling = Telling(len(cases), len(cases) - len(left))

    def on_result(result: Result) -> None:
        file.add(result)
        telling.tell(result)

    try:
        if left:
            run_cases(plan, left, on_result, workers=options.workers, timeout_seconds=options.timeout)
    finally:
        telling.end()
        file.close()
    wanted = {str(case) for case in cases}
    found = [result for name, result in file.results.items() if name in wanted]
    print("\n".join(table.summary(found)))
    if options.write:
        date = time.strftime("%Y-%m-%d", time.gmtime())
        path = ROOT / "bench" / "results" / f"opinfo-{accelerator}-{date}.md"
        path.write_text(table.document(conditions, found, skips, date))
        print(f"written: {path.relative_to(ROOT)}")
    if options.resume:
        # The next run begins anew.
        finished = options.results.with_name(f"{options.results.stem}-finished{options.results.suffix}")
        file.path = options.results.replace(finished)
    failed = [result for result in found if result.failed]
    for result in failed:
        print(result.text())
    print(f"{len(found):,} cases, {len(failed)} failed, {time.monotonic() - telling.begun:.0f} s; {file.path}")
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    cases = choose(options)
    if not cases:
        print("no case matches", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(map(str, cases)))
        return 0
    if options.device == "cpu":
        accelerator = "cpu"
    else:
        import torch_fl  # noqa: F401  (loads the device, or raises what is wrong with it)
        from torch_fl import _C

        accelerator = _C.accelerator_name()
    torch.set_num_threads(1)
    try:
        return run(options, cases, accelerator)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
