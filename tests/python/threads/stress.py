"""Runs the mix of pieces in many threads while routes change, and compares every result with a serial run, bit for bit.

    python tests/python/threads/stress.py --iterations 10000 --threads 8 --seed 1

Exit status: 0 all equal, 1 something differs or was left behind, 2 wrong use. A run that stands still for
`--timeout` seconds ends with the stacks of all threads and status 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import itertools
import json
import os
import random
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

# Read when torch loads the device.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from mix import SWAPPED_OVERLOADS, SWAPPED_ROUTES, Shared, piece_of, run_iteration

from torch_fl import _C

if TYPE_CHECKING:
    from collections.abc import Callable

#: One iteration in this many is also computed on the CPU.
CPU_SAMPLE = 10
#: Threads change hands this often, in seconds, instead of every 5 ms.
SWITCH_INTERVAL = 1e-4


@dataclass
class Report:
    """What a run found; an empty `problems` and zeros in `unequal*` and `bytes_left` are success."""

    iterations: int
    threads: int
    seed: int
    unequal: int = 0
    compared_with_cpu: int = 0
    unequal_to_cpu: int = 0
    routes_swapped: int = 0
    statistics_read: int = 0
    bytes_left: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def clean(self) -> bool:
        return not (self.unequal or self.unequal_to_cpu or self.bytes_left or self.problems)


class Progress:
    """A progress bar on a terminal, nothing elsewhere; also the sign of life that keeps the watchdog quiet."""

    def __init__(self, total: int, title: str, timeout: float) -> None:
        self._timeout = timeout
        self._bar: Any = None
        self._next_rearming = 0.0
        self._lock = threading.Lock()
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=title, file=sys.stderr)
        self.step(0)

    def step(self, number: int = 1) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.update(number)
            now = time.monotonic()
            if now >= self._next_rearming:
                self._next_rearming = now + 1
                faulthandler.dump_traceback_later(self._timeout, exit=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        faulthandler.cancel_dump_traceback_later()


def allocated() -> int:
    return sum(torch.flagos.memory_allocated(index) for index in range(torch.flagos.device_count()))


def settled() -> int:
    """Bytes allocated once they have not changed for a fifth of a second."""
    before, same = -1, 0
    gc.collect()
    while same < 20:
        before, now = allocated(), before
        same = same + 1 if before == now else 0
        time.sleep(0.01)
    return before


def memory_settles_at(base: int, seconds: float = 10) -> int:
    """Bytes beyond `base`, once the threads that ran backward have dropped their last graph."""
    end = time.monotonic() + seconds
    gc.collect()
    while True:
        left = allocated() - base
        if left == 0 or time.monotonic() > end:
            return left
        time.sleep(0.01)


def swap_routes(stop: threading.Event, seed: int, report: Report) -> None:
    """Changes one route after another, at times all of them back, and who listens to calls, until told to stop."""
    choices = random.Random(seed)
    while not stop.is_set():
        _C.set_route(choices.choice(SWAPPED_OVERLOADS), choices.choice(SWAPPED_ROUTES))
        report.routes_swapped += 1
        if choices.random() < 0.02:
            _C.clear_route_overrides()
        if choices.random() < 0.05:
            _C.set_timing(choices.random() < 0.5)
        time.sleep(0.01)  # a change resolves every route anew, which takes as long


def read_statistics(stop: threading.Event, report: Report) -> None:
    """Reads counters, routes and memory statistics; calls and allocations that were counted never become fewer."""
    calls = made = 0
    while not stop.is_set():
        calls, calls_before = sum(row["calls"] for row in torch.flagos.route_stats()), calls
        stats = torch.flagos.memory_stats()
        made, made_before = stats["allocation.all.allocated"], made
        if calls < calls_before or made < made_before:
            report.problems.append(f"counters went back: calls {calls_before} to {calls}, made {made_before} to {made}")
        if stats["allocated_bytes.all.current"] < 0 or not torch.flagos.routes():
            report.problems.append("statistics make no sense")
        report.statistics_read += 1
        time.sleep(0.005)


def reporting(report: Report, work: Callable[..., None], *arguments: Any) -> None:
    """Runs a thread's work; an error becomes one of the problems."""
    try:
        work(*arguments)
    except BaseException:  # noqa: BLE001  (whatever it is, the run has failed and says so)
        report.problems.append(traceback.format_exc())


def run_serially(device: str, seed: int, numbers: range, progress: Progress) -> tuple[dict[int, bytes], list[float]]:
    shared, digests = Shared(device), {}
    for iteration in numbers:
        digests[iteration] = run_iteration(device, shared, seed, iteration)
        progress.step()
    return digests, leaf_gradient(shared)


def leaf_gradient(shared: Shared) -> list[float]:
    return [] if shared.counted.grad is None else shared.counted.grad.tolist()


def run_in_threads(report: Report, progress: Progress, swap: bool) -> tuple[dict[int, bytes], list[float]]:
    shared, digests = Shared("flagos"), {}
    numbers = itertools.count()

    def work() -> None:
        while (iteration := next(numbers)) < report.iterations:
            try:
                digests[iteration] = run_iteration("flagos", shared, report.seed, iteration)
            except Exception:  # noqa: BLE001  (one iteration has failed; the others still run)
                report.problems.append(f"iteration {iteration}:\n{traceback.format_exc()}")
            progress.step()

    stop = threading.Event()
    background = [threading.Thread(target=reporting, args=(report, read_statistics, stop, report))]
    if swap:
        background.append(threading.Thread(target=reporting, args=(report, swap_routes, stop, report.seed, report)))
    workers = [threading.Thread(target=reporting, args=(report, work)) for _ in range(report.threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        for thread in background + workers:
            thread.start()
        for thread in workers:
            thread.join()
    finally:
        stop.set()
        for thread in background:
            thread.join()
        sys.setswitchinterval(interval)
        _C.clear_route_overrides()
        _C.set_timing(False)
    return digests, leaf_gradient(shared)


def run(iterations: int, threads: int, seed: int, *, timeout: float = 120, swap: bool = True) -> Report:
    """Runs everything and reports; changes no state of the process that it does not put back."""
    report = Report(iterations, threads, seed)
    start = time.monotonic()
    # What torch and the device make once and keep is made before the base is read.
    run_iteration("flagos", Shared("flagos"), seed, 0)
    base = settled()
    runs = {}
    for name, count, work in (
        ("serial", iterations, lambda bar: run_serially("flagos", seed, range(iterations), bar)),
        ("threads", iterations, lambda bar: run_in_threads(report, bar, swap)),
        ("cpu", iterations // CPU_SAMPLE, lambda bar: run_serially("cpu", seed, range(0, iterations, CPU_SAMPLE), bar)),
    ):
        progress = Progress(count, name, timeout)
        try:
            runs[name] = work(progress)
        finally:
            progress.close()
    serial, serial_gradient = runs["serial"]
    parallel, parallel_gradient = runs["threads"]
    for iteration in range(iterations):
        if iteration in parallel and parallel[iteration] != serial[iteration]:
            report.unequal += 1
            piece, numbers = piece_of(seed, iteration)
            report.problems.append(
                f"iteration {iteration}: {piece.__name__}, seed {numbers}, differs from the serial run"
            )
    for iteration, expected in runs["cpu"][0].items():
        report.compared_with_cpu += 1
        if serial[iteration] != expected:
            report.unequal_to_cpu += 1
            piece, numbers = piece_of(seed, iteration)
            report.problems.append(f"iteration {iteration}: {piece.__name__}, seed {numbers}, differs from the CPU")
    if parallel_gradient != serial_gradient:
        report.unequal += 1
        report.problems.append(f"the shared leaf's gradient is {parallel_gradient}, serially {serial_gradient}")
    report.bytes_left = memory_settles_at(base)
    report.seconds = round(time.monotonic() - start, 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="example: stress.py --iterations 500")
    parser.add_argument("--iterations", type=int, default=10000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds without progress that count as a hang")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    arguments = parser.parse_args()
    if arguments.iterations < 1 or arguments.threads < 1:
        parser.error("--iterations and --threads are at least 1")
    report = run(arguments.iterations, arguments.threads, arguments.seed, timeout=arguments.timeout)
    if arguments.json:
        print(json.dumps(asdict(report)))
    else:
        print(f"iterations          {report.iterations} in {report.threads} threads, seed {report.seed}")
        print(f"unequal to serial   {report.unequal}")
        print(f"unequal to the CPU  {report.unequal_to_cpu} of {report.compared_with_cpu} compared")
        print(f"routes swapped      {report.routes_swapped}, statistics read {report.statistics_read} times")
        print(f"bytes left          {report.bytes_left}")
        print(f"seconds             {report.seconds}")
        for problem in report.problems[:20]:
            print(problem)
    return 0 if report.clean() else 1


if __name__ == "__main__":
    sys.exit(main())
