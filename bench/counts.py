"""Counts the instructions and heap allocations of one operator call from Python, on flagos and on the CPU.

Unlike times, these counts are the same on a busy machine and on a quiet one. The rows are those of operators.py; the
counted process runs under valgrind's callgrind with one thread, and calls each statement often enough that what does
not belong to a call (the loop, the counting itself) vanishes after that of an empty statement is subtracted.

Needs valgrind and a C compiler (Debian: apt-get install valgrind gcc).

Example:
  python bench/counts.py --write
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import timeit
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
DEVICES = ("flagos", "cpu")

#: Calls of a statement while it is counted, and before.
CALLS = 200
WARM_CALLS = 50

#: The statement whose counts are subtracted from those of the others.
EMPTY = "nothing"


@dataclass(frozen=True)
class Counts:
    """Of one call: instructions, and allocations from the heap."""

    instructions: float
    allocations: float


def count_in_this_process(counter: str) -> None:
    """Runs every row on every device, and prints the allocations as JSON; callgrind writes the instructions to files.

    Runs under callgrind, with `counter` preloaded.
    """
    import operators
    import torch

    torch.set_num_threads(1)
    library = ctypes.CDLL(counter)
    library.flagos_allocations.restype = ctypes.c_ulong
    allocations = {}
    statements = [(EMPTY, "cpu", timeit.Timer("pass"))]
    statements += [
        (row.name, device, timeit.Timer(row.statement, globals=row.names(device)))
        for row in operators.ROWS
        for device in DEVICES
    ]
    for name, device, timer in statements:
        timer.timeit(WARM_CALLS)
        before = library.flagos_allocations()
        library.flagos_begin()
        timer.timeit(CALLS)
        library.flagos_end(f"{name}|{device}".encode())
        allocations[f"{name}|{device}"] = library.flagos_allocations() - before
    print(json.dumps(allocations))


def read_dumps(folder: Path) -> dict[str, int]:
    """Instructions by the name that was given to each dump."""
    totals = {}
    for path in folder.glob("counts.*"):
        text = path.read_text(errors="replace")
        trigger = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
        if trigger and total:
            totals[trigger[1]] = int(total[1])
    return totals


def count() -> dict[str, dict[str, Counts]]:
    """Counts by row and device."""
    missing = [program for program in ("valgrind", "cc") if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} not found; Debian: apt-get install valgrind gcc libc6-dev")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        counter = folder / "call_counter.so"
        source = FOLDER / "call_counter.c"
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", "-o", str(counter), str(source)], check=True)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counts.%p"]
        command += [sys.executable, str(Path(__file__).resolve()), "--counted", str(counter)]
        done = subprocess.run(
            command,
            env=os.environ | {"LD_PRELOAD": str(counter), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"the counted process failed with status {done.returncode}\n{done.stderr[-4000:]}")
        allocations = json.loads(done.stdout.splitlines()[-1])
        instructions = read_dumps(folder)
    absent = allocations.keys() - instructions.keys()
    if absent:
        raise SystemExit(f"callgrind wrote no counts for {sorted(absent)}")
    empty = f"{EMPTY}|cpu"
    result: dict[str, dict[str, Counts]] = {}
    for key, allocated in allocations.items():
        if key != empty:
            name, device = key.split("|")
            result.setdefault(name, {})[device] = Counts(
                (instructions[key] - instructions[empty]) / CALLS, (allocated - allocations[empty]) / CALLS
            )
    return result


def table(counts: dict[str, dict[str, Counts]], about: dict[str, str]) -> str:
    """The result as Markdown."""
    lines = ["# Instructions and heap allocations of an operator call", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += [
        "",
        "Of one call from Python, one thread, counted by callgrind; an empty statement is subtracted. Allocations are",
        "those from the heap of the C library; Python takes small objects from its own pools.",
        "",
        "| call | instructions flagos | cpu | difference | ratio | allocations flagos | cpu | difference |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, by_device in counts.items():
        flagos, cpu = by_device["flagos"], by_device["cpu"]
        cells = [
            name,
            f"{flagos.instructions:,.0f}",
            f"{cpu.instructions:,.0f}",
            f"{flagos.instructions - cpu.instructions:+,.0f}",
            f"{flagos.instructions / cpu.instructions:.2f}",
            f"{flagos.allocations:,.1f}",
            f"{cpu.allocations:,.1f}",
            f"{flagos.allocations - cpu.allocations:+,.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Command line; see `--help`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="write a JSON object to stdout instead of the table")
    parser.add_argument("--write", action="store_true", help="write the table to bench/results/ too")
    parser.add_argument("--counted", metavar="LIBRARY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted:
        count_in_this_process(options.counted)
        return 0
    print("counting under callgrind, about two minutes", file=sys.stderr)
    counts = count()
    import operators

    about = operators.versions()
    if options.json:
        rows = {
            name: {device: asdict(found) for device, found in by_device.items()} for name, by_device in counts.items()
        }
        print(json.dumps({"about": about, "counts": rows}, indent=1))
    else:
        print(table(counts, about), end="")
    if options.write:
        operators.RESULTS.mkdir(exist_ok=True)
        path = operators.RESULTS / f"counts-{about['date']}.md"
        path.write_text(table(counts, about))
        print(f"written to {path.relative_to(FOLDER.parent)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
