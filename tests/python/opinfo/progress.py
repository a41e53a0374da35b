"""Which sample of which case is under way, and on which device: in memory that outlives the process that wrote it."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

_RECORD = struct.Struct("<iii")


@dataclass(frozen=True)
class Position:
    """The last thing a case began; counted from 0."""

    sample: int
    attempt: int
    on_device: bool


class Progress:
    """One record for each case, shared by a process and those forked from it; each record has one writer at a time."""

    def __init__(self, cases: int) -> None:
        self._memory = mmap.mmap(-1, max(1, cases) * _RECORD.size)

    def mark(self, case: int, position: Position) -> None:
        _RECORD.pack_into(
            self._memory, case * _RECORD.size, position.sample + 1, position.attempt, int(position.on_device)
        )

    def last(self, case: int) -> Position | None:
        """The last position marked for the case with that number; None before the first."""
        sample, attempt, on_device = _RECORD.unpack_from(self._memory, case * _RECORD.size)
        return Position(sample - 1, attempt, bool(on_device)) if sample else None
