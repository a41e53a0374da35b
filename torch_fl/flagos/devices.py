"""Devices: how many there are, which is current, what they are, and waiting for them. Index rules as in torch.cuda."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from torch_fl import _C
from torch_fl.flagos.index import DEVICE_TYPE, Device, _get_device_index, existing_index


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is. `total_memory` in bytes; `major` and `minor` are the accelerator's capability."""

    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int


def is_available() -> bool:
    """Return True if there is at least one device. Touches no device, so a child may be forked afterwards."""
    return _C.device_count() > 0


def device_count() -> int:
    """Return the number of flagos devices. Touches no device, so a child may be forked afterwards."""
    return _C.device_count()


def is_initialized() -> bool:
    """Return True once a device has been used in this process."""
    return _C.is_initialized()


def _is_in_bad_fork() -> bool:
    """Return True in a child that was forked after its parent had used a device."""
    return _C.is_in_bad_fork()


def init() -> None:
    """Initialise the devices; done by the first use anyway. RuntimeError in a child forked after a device was used."""
    _C.lazy_init()


def _lazy_init() -> None:
    """Initialise the devices; torch calls this by name before it creates the first tensor."""
    if not _C.is_initialized():
        _C.lazy_init()
        atexit.register(_end_backward_threads, os.getpid())


def _end_backward_threads(process: int) -> None:
    """Let torch's backward threads come to rest before the interpreter goes; a forked child has none of them.

    It takes small calls on each device, which must neither show in the program's log nor fail for want of memory.
    """
    if os.getpid() != process:
        return
    _C.set_log("")
    for index in range(_C.device_count()):
        _C.set_memory_limit(index, 0)
    _C.drain_backward_threads()


def current_device() -> int:
    """Return the index of the calling thread's current device."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make a device the calling thread's current one; a negative index changes nothing.

    Raises ValueError for a device without index or of another type, RuntimeError for an index out of range.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C.set_device(index)


def _exchange_device(index: int) -> int:
    """Make `index` current and return the device that was; a negative index changes nothing and gives -1."""
    return _C.exchange_device(index) if index >= 0 else -1


def _maybe_exchange_device(index: int) -> int:
    """Like `_exchange_device`; a device that has not been used yet is not initialised by it."""
    return _exchange_device(index)


def synchronize(device: Device = None) -> None:
    """Wait until all work queued on a device, by default the current one, is done. Errors of the work surface here."""
    _C.synchronize(existing_index(device))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return the properties of a device, by default the current one. RuntimeError for an index out of range."""
    return DeviceProperties(**_C.device_properties(existing_index(device)))


def get_device_name(device: Device = None) -> str:
    """Return the name of a device, by default the current one. RuntimeError for an index out of range."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return (major, minor) of a device, by default the current one. RuntimeError for an index out of range."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


class device:
    """Context in which another device is the calling thread's current one. None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context in which the device of a tensor or storage is current; one that is not on flagos changes nothing."""

    def __init__(self, obj: Any) -> None:
        place = obj.device
        super().__init__(place.index if place.type == DEVICE_TYPE else -1)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that `torch.autocast("flagos")` accepts."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True: every accelerator so far computes in bfloat16 (`host` as PyTorch's CPU kernels do)."""
    return True
