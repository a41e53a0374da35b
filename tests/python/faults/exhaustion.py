"""Lets one allocation after another fail in a piece of work, and checks what is left each time."""

from __future__ import annotations

import gc
import re
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = re.compile(
    r"flagos out of memory\. (?:Tried to allocate (?P<asked>\d+) bytes on device (?P<device>\d+)"
    r"|A kernel grew a tensor on device (?P<grown_device>\d+) to (?P<grown>\d+) bytes)"
    r", which has a limit of (?P<limit>\d+) bytes, of which (?P<allocated>\d+) bytes are allocated "
    r"and (?P<free>\d+) bytes are free\."
)


def allocated() -> int:
    return torch.flagos.memory_allocated(0)


def allocations_made() -> int:
    return torch.flagos.memory_stats(0)["allocation.all.allocated"]


def check_back_at(base: int, what: str) -> None:
    """Nothing but what was there before is allocated, at the latest after the next backward.

    Where a backward pass fails, PyTorch keeps what was ready to run next until the thread runs backward again, on the
    CPU as here (docs/memory.md).
    """
    if allocated() == base:
        return
    gc.collect()
    torch.ones((), requires_grad=True).backward()
    end = time.monotonic() + 10
    while allocated() != base and time.monotonic() < end:
        time.sleep(0.001)
    assert allocated() == base, f"{what}: {allocated() - base} bytes are left"


def numbers_of(message: str) -> dict[str, int]:
    """The numbers of an error, which must make sense together."""
    found = NUMBERS.search(message)
    assert found, message
    numbers = {name: int(value) for name, value in found.groupdict().items() if value is not None}
    assert numbers["free"] == max(numbers["limit"] - numbers["allocated"], 0), message
    if "asked" in numbers:
        assert numbers["asked"] > numbers["free"], message
    else:
        assert numbers["allocated"] > numbers["limit"], message
    return numbers


def error_of(work: Callable[[], Any], index: int = 0) -> str | None:
    """The text of the OutOfMemoryError that `work` raises, None where it raises none. No frame of it stays alive."""
    try:
        work()
    except torch.OutOfMemoryError as error:
        message = str(error)
        numbers = numbers_of(message)
        assert numbers.get("device", numbers.get("grown_device")) == index, message
        return message
    return None


class AtEachAllocation:
    """Iterates over 1, 2, … and has that allocation fail in the piece of work given to `fails`, until none did.

    for turn in (attempts := AtEachAllocation()):
        attempts.run(work)
    """

    def __init__(self) -> None:
        from torch_fl import _C

        self._fail_allocation = _C.fail_allocation
        self.count = 0
        self._done = False

    def __iter__(self) -> AtEachAllocation:
        return self

    def __next__(self) -> int:
        if self._done:
            raise StopIteration
        self.count += 1
        return self.count

    def run(self, work: Callable[[], Any]) -> bool:
        """True where the allocation of this turn was reached and its error came out of `work`."""
        self._fail_allocation(0, self.count)
        try:
            message = error_of(work)
        finally:
            reached = self._fail_allocation(0, 0) == 0
        assert reached == (message is not None), f"allocation {self.count}: the error was lost, or came from elsewhere"
        if not reached:
            self._done = True
            self.count -= 1
        return reached


class StopBefore(TorchDispatchMode):
    """Raises before operator number `number` runs; without a number it only counts."""

    class Stopped(Exception):
        pass

    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self.number = number
        self.begun: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if len(self.begun) == self.number:
            raise self.Stopped
        self.begun.append(str(function))
        return function(*arguments, **(named or {}))
