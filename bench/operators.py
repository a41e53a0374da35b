"""Measures what one operator call from Python costs on flagos and on the CPU, and how long `import torch_fl` takes.

The tensors have a few elements, so the kernels do next to nothing and the price of the way to them is what is left. One
thread; flagos and CPU take turns in the same process, round by round, and the median over the rounds counts.

Example:
  python bench/operators.py --rounds 50 --write
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torch_fl

RESULTS = Path(__file__).parent / "results"

#: About how long one timing lasts: long against the clock and short against whatever else the machine does.
SECONDS_PER_TIMING = 0.003


@dataclass(frozen=True)
class Aim:
    """What a row should stay below: nanoseconds above the CPU, or the ratio to it."""

    nanoseconds: float | None = None
    ratio: float | None = None

    def __str__(self) -> str:
        return f"≤ {self.nanoseconds:,.0f} ns" if self.nanoseconds is not None else f"≤ {self.ratio:.2f} ×"


@dataclass(frozen=True)
class Row:
    """One line of the table: a statement, and what it names, made for one device."""

    name: str
    statement: str
    names: Callable[[str], dict[str, Any]]
    aim: Aim | None = None


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds, in nanoseconds a call."""

    name: str
    flagos: float
    cpu: float
    aim: Aim | None

    @property
    def difference(self) -> float:
        return self.flagos - self.cpu

    @property
    def ratio(self) -> float:
        return self.flagos / self.cpu

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; None where there is none."""
        if self.aim is None:
            return None
        if self.aim.nanoseconds is not None:
            return self.difference <= self.aim.nanoseconds
        return self.aim.ratio is not None and self.ratio <= self.aim.ratio


def square(device: str) -> dict[str, Any]:
    """Two matrices of 16 elements."""
    return {"torch": torch, "a": torch.ones(4, 4, device=device), "b": torch.ones(4, 4, device=device)}


def layer_norm(device: str) -> dict[str, Any]:
    """A matrix of 16 elements with the weights of a normalisation over its rows."""
    return square(device) | {"weight": torch.ones(4, device=device), "bias": torch.zeros(4, device=device)}


def training_step(device: str) -> dict[str, Any]:
    """One step of SGD for a network of two layers on 8 examples."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    examples, labels = torch.randn(8, 16).to(device), torch.arange(8).remainder(4).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(examples), labels).backward()
        optimizer.step()

    return {"step": step}


OUT_OF_PLACE = Aim(nanoseconds=350)

ROWS = (
    Row("add", "torch.add(a, b)", square, OUT_OF_PLACE),
    Row("add_", "a.add_(b)", square, Aim(nanoseconds=250)),
    Row("mm", "torch.mm(a, b)", square, OUT_OF_PLACE),
    Row("view", "a.view(16)", square, Aim(ratio=1.15)),
    Row("empty", "torch.empty(4, device=device)", lambda device: {"torch": torch, "device": device}, Aim(ratio=1.10)),
    Row("sum", "torch.sum(a)", square),
    Row("cat of 8", "torch.cat(list)", lambda device: {"torch": torch, "list": [torch.ones(4, device=device)] * 8}),
    Row("layer_norm", "torch.layer_norm(a, (4,), weight, bias)", layer_norm),
    Row(
        "index_select",
        "torch.index_select(a, 0, index)",
        lambda device: square(device) | {"index": torch.tensor([0, 2], device=device)},
        OUT_OF_PLACE,
    ),
    Row("training step of a small MLP", "step()", training_step, Aim(ratio=1.15)),
)

#: Milliseconds that the import should take at most.
IMPORT_AIM = 50


def measure(rows: tuple[Row, ...], rounds: int) -> list[Measured]:
    """The medians of every row; all rows take part in each round, so that a slow moment hits them alike."""
    devices = ("flagos", "cpu")
    timers = {
        (row, device): timeit.Timer(row.statement, globals=row.names(device)) for row in rows for device in devices
    }
    calls = {}
    for key, timer in timers.items():
        timer.timeit(100)  # warm: first calls load kernels and fill caches
        calls[key] = max(1, int(SECONDS_PER_TIMING / (timer.timeit(100) / 100)))
    times: dict[tuple[Row, str], list[float]] = {key: [] for key in timers}
    for number in range(rounds):
        for row in rows:
            for device in devices if number % 2 else devices[::-1]:
                key = (row, device)
                times[key].append(timers[key].timeit(calls[key]) / calls[key] * 1e9)
    results = []
    for row in rows:
        flagos, cpu = (statistics.median(times[row, device]) for device in devices)
        results.append(Measured(row.name, flagos, cpu, row.aim))
    return results


def measure_import(processes: int) -> float:
    """Milliseconds that `import torch_fl` takes after `import torch`, the median over fresh processes."""
    program = "import time, torch; t = time.perf_counter(); import torch_fl; print((time.perf_counter() - t) * 1e3)"
    # Without this, importing torch would already have loaded the device.
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # An installed package has its bytecode, so the sources are not to be compiled in each process.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program]
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(processes)
    ]
    return statistics.median(float(output.split()[-1]) for output in outputs)


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """What the figures depend on; nothing that names this machine."""
    routes = torch_fl._C.routes()
    unboxed = sum(route["unboxed"] for route in routes)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": cpu_model(),
        "accelerator": torch_fl._C.accelerator_name(),
        "unboxed overloads": f"{unboxed} of {len(routes)}",
    }


def table(measured: list[Measured], import_time: float | None, about: dict[str, str]) -> str:
    """The result as Markdown."""
    lines = ["# Price of an operator call", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += [
        "",
        "Nanoseconds a call from Python, one thread, tensors of a few elements; medians of interleaved rounds.",
        "An aim is a bound on the difference (ns) or on the ratio (×).",
        "",
        "| call | flagos | cpu | difference | ratio | aim | reached |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in measured:
        now = [f"{row.flagos:,.0f}", f"{row.cpu:,.0f}", f"{row.difference:+,.0f}", f"{row.ratio:.2f}"]
        aim = [str(row.aim), "yes" if row.reached else "**no**"] if row.aim else ["", ""]
        lines.append(f"| {' | '.join([row.name, *now, *aim])} |")
    if import_time is not None:
        reached = "reached" if import_time <= IMPORT_AIM else "**missed**"
        lines += [
            "",
            f"`import torch_fl` after `import torch`: {import_time:.0f} ms (aim ≤ {IMPORT_AIM} ms: {reached}).",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Command line; see `--help`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="timings of each row on each device (default: 25)")
    parser.add_argument(
        "--imports", type=int, default=5, help="fresh processes for the import time, 0 for none (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="write a JSON object to stdout instead of the table")
    parser.add_argument(
        "--write", action="store_true", help=f"write the table to {RESULTS.parent.name}/{RESULTS.name}/ too"
    )
    options = parser.parse_args()
    if options.rounds < 1 or options.imports < 0:
        parser.error("--rounds must be 1 or more, --imports 0 or more")
    torch.set_num_threads(1)
    about = versions()
    measured = measure(ROWS, options.rounds)
    import_time = measure_import(options.imports) if options.imports else None
    if options.json:
        rows = [asdict(row) | {"ratio": row.ratio, "reached": row.reached} for row in measured]
        print(json.dumps({"about": about, "nanoseconds": rows, "import_milliseconds": import_time}, indent=1))
    else:
        print(table(measured, import_time, about), end="")
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"operators-{about['date']}.md"
        path.write_text(table(measured, import_time, about))
        print(f"written to {path.relative_to(RESULTS.parent.parent)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
