"""Run cases in forked worker processes, so that one that crashes, hangs or leaves costs only itself.

Example:
    def body(case: str) -> tuple[Verdict, str]:
        expected = getattr(torch, case)(torch.ones(3))
        result = getattr(torch, case)(torch.ones(3, device="flagos")).cpu()
        return (Verdict.PASS, "") if torch.equal(result, expected) else (Verdict.WRONG, str(result))

    run_isolated(["sin", "cos"], body, print, workers=2)
"""

from __future__ import annotations

import enum
import faulthandler
import io
import os
import sys
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torch_fl import _C

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Outcome", "Verdict", "run_isolated"]


class Verdict(enum.Enum):
    """What came of a case. The values are the words of evidence files."""

    PASS = "pass"
    """The backend agrees with the oracle."""
    WRONG = "wrong"
    """It gave other values, or another dtype, shape or stride."""
    UNWRITTEN = "unwritten"
    """It reported success and left (part of) a result as it was."""
    NONDETERMINISTIC = "nondeterministic"
    """Two runs on the same inputs differ."""
    INPUT_CHANGED = "input_changed"
    """An argument that the schema calls read-only came back changed."""
    DECLINED = "declined"
    """The backend refused before it wrote anything."""
    ERROR = "error"
    """It raised."""
    CRASH = "crash"
    """The process ended: by a signal, or by leaving with a status."""
    HANG = "hang"
    """The time limit passed."""
    OUT_OF_MEMORY = "out_of_memory"
    """Device or host memory did not suffice."""
    ROUTE_NOT_TAKEN = "route_not_taken"
    """Another backend served the call, so nothing was learnt about this one."""
    INVALID = "invalid"
    """The oracle refuses the call too."""
    NOT_APPLICABLE = "not_applicable"
    """There is no oracle: no CPU kernel and no decomposition."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case."""

    case: str
    verdict: Verdict
    detail: str
    """As the body gave it; the traceback of an exception; for a crash or a hang, what ended the worker."""
    stderr: str
    """All that the worker and its children wrote to stdout and stderr during the case; at a crash the Python stack."""
    signal: int
    """That ended the worker by itself; 0 for none."""
    seconds: float
    """In the body; for a crash or a hang, until it was seen."""
    worker: int
    """0 to `workers` - 1."""


def run_isolated(
    cases: Sequence[str],
    body: Callable[[str], tuple[Verdict, str]],
    on_outcome: Callable[[Outcome], None],
    *,
    workers: int = 1,
    timeout_seconds: float = 60,
    set_up: Callable[[], None] | None = None,
) -> None:
    """Run `body` once for each case, and call `on_outcome` once for each, in order of completion.

    `body` and `set_up` (once, at the start of each worker) run in a worker: a fork of this process that lives from case
    to case until it dies. `on_outcome` runs in this process and thread. An exception that `body` lets out is
    `Verdict.ERROR` with its traceback; torch.OutOfMemoryError and MemoryError are `Verdict.OUT_OF_MEMORY`. A crash, an
    os._exit, and a case of more than `timeout_seconds`, after which it is killed, are charged to the case alone; a new
    worker goes on with the next. Each worker leads a process group of its own, which is killed with it.

    This process must not have used a flagos device, nor run an operator on several threads (OpenMP): neither survives
    a fork. `body` may do both.

    An exception of `on_outcome`, and KeyboardInterrupt, kill the workers and propagate; cases left have no outcome.

    Errors: RuntimeError where a device has been used already, where `set_up` raises or takes over five minutes, where
    workers keep dying outside of a case, or where the system refuses memory or a process; ValueError for `workers`
    below 1 or a limit that is not above 0.
    """
    if _C.is_initialized() or _C.is_in_bad_fork():
        raise RuntimeError(
            "run_isolated forks its workers, and a flagos device does not survive a fork, but this process has used "
            "one. Call it before the first use, with every use in body or set_up; or call it in a fresh process."
        )
    names = list(cases)

    def call_body(index: int) -> tuple[str, bytes]:
        verdict, detail = _judge(body, names[index])
        return verdict.value, detail.encode("utf-8", "backslashreplace")

    def hear(index: int, verdict: str, detail: bytes, output: bytes, signal: int, seconds: float, worker: int) -> None:
        texts = (detail.decode("utf-8", "backslashreplace"), output.decode("utf-8", "backslashreplace"))
        on_outcome(Outcome(names[index], Verdict(verdict), *texts, signal, seconds, worker))

    def begin() -> None:
        _enter_worker()
        if set_up is not None:
            set_up()

    _C.run_isolated(len(names), call_body, hear, begin, _fork, workers, timeout_seconds)


def _judge(body: Callable[[str], tuple[Verdict, str]], case: str) -> tuple[Verdict, str]:
    """What `body` says of `case`, or what its exception means."""
    try:
        answer: Any = body(case)
    except (torch.OutOfMemoryError, MemoryError):
        return Verdict.OUT_OF_MEMORY, traceback.format_exc()
    except BaseException:  # noqa: BLE001  (SystemExit and KeyboardInterrupt too are an error of the case)
        return Verdict.ERROR, traceback.format_exc()
    match answer:
        case (Verdict() as verdict, str() as detail):
            return verdict, detail
    return Verdict.ERROR, f"body must return (Verdict, str), not {answer!r}"


def _fork() -> int:
    """os.fork, with every at-fork handler of Python and torch; which threads there are is the caller's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any thread, even a sleeping one
        return os.fork()


def _enter_worker() -> None:
    """Make Python write where the worker's descriptors 1 and 2 point, also where somebody had replaced sys.stdout."""
    sys.stdout = sys.__stdout__ = _unbuffered(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _unbuffered(2)  # type: ignore[misc]
    faulthandler.enable(file=2)  # the Python stack at a crash


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    """A text stream that keeps nothing back: what a case printed before it crashed must not be lost."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
