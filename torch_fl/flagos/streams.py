"""Streams and events with torch.cuda's signatures, on torch's device-neutral `torch.Stream` and `torch.Event`."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_fl.flagos.index import DEVICE_TYPE, Device, existing_index

# Every guard implementation gives the default stream of each device this id.
_DEFAULT_STREAM_ID = 0


class Stream(torch.Stream):
    """A queue of work on one device, run in order.

    `device`: None is the current device. `priority`: lower runs first; values outside the device's range are clamped.
    `stream_id`, `device_index` and `device_type` together name an existing stream instead.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **existing: Any) -> Stream:
        if existing:
            return super().__new__(cls, priority=priority, **existing)
        return super().__new__(cls, torch.device(DEVICE_TYPE, existing_index(device)), priority=priority)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event, a new one if none is given, behind all work queued so far, and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.flagos.Stream device={self.device} stream_id={self.stream_id:#x}>"


class _EventType(type):
    """Makes `isinstance(event, torch.flagos.Event)` tell events of this device."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and torch.device(instance.device).type == DEVICE_TYPE


class Event(metaclass=_EventType):
    """A mark in a stream, to wait for or to measure time between two of.

    `enable_timing`: needed for `elapsed_time`, which is in milliseconds. `blocking`: `synchronize` sleeps instead of
    spinning, where the accelerator distinguishes them. `interprocess`: for use in other processes.

    Calling the class gives a `torch.Event` of this device: `torch.Event.elapsed_time` takes no subclass of it.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event(DEVICE_TYPE, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _as_flagos_stream(stream: torch.Stream) -> Stream:
    if isinstance(stream, Stream):
        return stream
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Device = None) -> Stream:
    """Return the calling thread's current stream of a device, by default of the current device."""
    return _as_flagos_stream(torch.accelerator.current_stream(existing_index(device)))


def default_stream(device: Device = None) -> Stream:
    """Return the stream that a device, by default the current one, starts with."""
    current = torch.accelerator.current_stream(existing_index(device))
    return Stream(stream_id=_DEFAULT_STREAM_ID, device_index=current.device_index, device_type=current.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream its device's current one for the calling thread, and that device current; None changes nothing.

    Raises ValueError for a stream of another device type, TypeError for what is no stream.
    """
    if stream is None:
        return
    _require_flagos(stream)
    torch.accelerator.set_stream(stream)


class StreamContext:
    """Context in which a stream is current; afterwards the streams and the device that were current are so again."""

    def __init__(self, stream: torch.Stream | None) -> None:
        if stream is not None:
            _require_flagos(stream)
        self.stream = stream
        self._outer_stream: Stream | None = None
        self._inner_stream: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._outer_stream = current_stream()
        if self._outer_stream.device != self.stream.device:
            self._inner_stream = current_stream(self.stream.device)
        torch.accelerator.set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Setting a stream also makes its device current, so the stream of the outer device comes last.
        for previous in (self._inner_stream, self._outer_stream):
            if previous is not None:
                torch.accelerator.set_stream(previous)
        self._inner_stream = self._outer_stream = None


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which `stream` is current; with None it does nothing."""
    return StreamContext(stream)


def _require_flagos(stream: object) -> None:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"Expected a stream of a flagos device, but got: {stream!r}")
    if stream.device.type != DEVICE_TYPE:
        raise ValueError(f"Expected a stream of a flagos device, but got one of: {stream.device}")


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make the stream with this id current; Dynamo calls it by name."""
    torch.accelerator.set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def is_current_stream_capturing() -> bool:
    """Return False: no accelerator so far captures graphs."""
    return False
