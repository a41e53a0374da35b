"""Memory of the devices: what is in use, what is left, and the limit. All sizes in bytes, statistics named as in CUDA.

The counters are kept by the C++ allocator and read through torch.accelerator, which answers the same questions.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

import torch

from torch_fl import _C
from torch_fl.flagos.index import Device, existing_index


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return (free, total) memory of a device in bytes."""
    return _C.mem_get_info(existing_index(device))


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Return the allocator's counters under CUDA's flat keys, such as "allocated_bytes.all.current", sorted by key."""
    return torch.accelerator.memory_stats(existing_index(device))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return what `memory_stats` does, as nested dictionaries: `["allocated_bytes"]["all"]["current"]`."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *path, last = key.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that live tensors hold."""
    return torch.accelerator.memory_allocated(existing_index(device))


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that live tensors held, since the start or `reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_allocated(existing_index(device))


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds, those in its cache included."""
    return torch.accelerator.memory_reserved(existing_index(device))


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator held, since the start or `reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_reserved(existing_index(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let every "peak" counter start again from the current value."""
    torch.accelerator.reset_peak_memory_stats(existing_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the historical counters ("allocated", "freed", "num_ooms", …) to 0."""
    torch.accelerator.reset_accumulated_memory_stats(existing_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """Same as `reset_peak_memory_stats`, under torch.cuda's older name."""
    reset_peak_memory_stats(device)


def empty_cache() -> None:
    """Give cached blocks that no tensor uses back to the system; does nothing where the allocator keeps none."""
    torch.accelerator.empty_cache()


def set_memory_limit(limit: int, device: Device = None) -> None:
    """Let allocations beyond `limit` bytes on a device raise torch.OutOfMemoryError; 0 means no limit.

    Raises TypeError for a limit that is no integer, ValueError for one that is negative or beyond 64 bits.
    """
    if not isinstance(limit, int):
        raise TypeError(f"a memory limit is a whole number of bytes, or 0 for none, but got: {limit!r}")
    if not 0 <= limit < 2**63:
        raise ValueError(f"a memory limit is a number of bytes, or 0 for none, but got: {limit}")
    index = existing_index(device)
    _unlimited_memory(index)
    _C.set_memory_limit(index, limit)


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limit a device to a fraction of the memory it started with, as torch.cuda does.

    Raises TypeError unless `fraction` is a float, ValueError unless it lies in (0, 1].
    """
    if not isinstance(fraction, float):
        raise TypeError(f"fraction must be a float, but got: {fraction!r}")
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"fraction must lie in (0, 1], but got: {fraction}")
    index = existing_index(device)
    _C.set_memory_limit(index, int(fraction * _unlimited_memory(index)))


@functools.cache
def _unlimited_memory(index: int) -> int:
    """Return the memory that a device started with; asked before a limit is set, since the limit then stands for it."""
    total: int = _C.device_properties(index)["total_memory"]
    return total


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return a table of the byte counters (current, peak, allocated, freed); `abbreviated` leaves the history out."""
    index = existing_index(device)
    stats = memory_stats(index)
    columns = ["current", "peak"] if abbreviated else ["current", "peak", "allocated", "freed"]
    lines = [f"flagos:{index} memory in bytes", f"{'':<18}" + "".join(f"{column:>18}" for column in columns)]
    for counter in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        values = [stats.get(f"{counter}.all.{column}", 0) for column in columns]
        lines.append(f"{counter:<18}" + "".join(f"{value:>18,}" for value in values))
    lines.append(f"out of memory: {stats.get('num_ooms', 0)}, retries: {stats.get('num_alloc_retries', 0)}")
    return "\n".join(lines)
