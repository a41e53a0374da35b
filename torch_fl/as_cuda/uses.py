"""The list of what was mapped from `cuda` to `flagos`: what, how often, and at which line of the program."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter
from types import FrameType

import torch

import torch_fl

_PREFIX = "[flagos as-cuda]"
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(torch_fl.__file__) + os.sep
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep

Place = tuple[str, int]
"""File and line."""


class Uses:
    """Counts of (place, what). Any thread may add; the first use of all is told on stderr at once."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Place, str]] = Counter()
        self._lock = threading.Lock()

    def note(self, what: str) -> None:
        """Count one use at the innermost line of the program or a library over torch."""
        self._add(_program_frame(sys._getframe(1)), what)

    def note_direct(self, what: str) -> None:
        """Count one use unless torch itself is the caller: its own questions are not the program's."""
        frame = _skip(sys._getframe(1), _OURS)
        if frame is not None and not frame.f_code.co_filename.startswith(_TORCH):
            self._add(frame, what)

    def _add(self, frame: FrameType | None, what: str) -> None:
        place = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        with self._lock:
            first = not self._counts
            self._counts[place, what] += 1
        if first:
            text = f"{_PREFIX} in this process cuda means flagos; what was mapped is listed at the end of the program"
            print(text, file=sys.stderr)

    def counts(self) -> dict[tuple[Place, str], int]:
        """Return a copy of the counts so far."""
        with self._lock:
            return dict(self._counts)

    def report(self) -> list[str]:
        """Return the list as lines, sorted by place."""
        counts = self.counts()
        if not counts:
            return [f"{_PREFIX} nothing to map: the program used no name of CUDA"]
        shown = {place: _text(place) for place, _ in counts}
        width = max(map(len, shown.values()))
        uses = sum(counts.values())
        times = "1 use" if uses == 1 else f"{uses:,} uses"
        places = "1 place" if len(shown) == 1 else f"{len(shown):,} places"
        lines = [f"{_PREFIX} {times} of cuda mapped to flagos, at {places}:"]
        lines += [
            f"{_PREFIX}   {shown[place]:<{width}}  {what} × {count:,}"
            for (place, what), count in sorted(counts.items(), key=lambda item: item[0])
        ]
        return lines


def called_from_torch() -> bool:
    """True where the innermost frame outside this package is torch's."""
    frame = _skip(sys._getframe(1), _OURS)
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


def _program_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not _is_of_a_program(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_of_a_program(file: str) -> bool:
    """True for a line that somebody wrote to use torch: none of torch's, ours, Python's or of its decorators."""
    if file.startswith((_TORCH, _OURS, "<frozen")) or file.endswith("typing_extensions.py"):
        return False
    return not file.startswith(_STANDARD_LIBRARY) or "site-packages" in file


def _skip(frame: FrameType | None, folder: str) -> FrameType | None:
    while frame is not None and frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return frame


def _text(place: Place) -> str:
    """Return `file:line`, the file relative to the current folder or to the folder of installed packages."""
    file, line = place
    if not file:
        return "(a thread without a line of the program)"
    for folder in (os.getcwd() + os.sep, os.path.dirname(os.path.dirname(_TORCH)) + os.sep):
        if file.startswith(folder):
            return f"{file.removeprefix(folder)}:{line}"
    return f"{file}:{line}"
