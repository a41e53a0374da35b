"""Streams and events: the current one, contexts, ordering, timing, and the objects torch.cuda users expect."""

from __future__ import annotations

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos


def test_current_and_default(device: str) -> None:
    default = torch.flagos.default_stream()
    assert torch.flagos.current_stream() == default
    assert torch.accelerator.current_stream() == default
    assert default.device == torch.device(device, 0)
    assert torch.flagos.current_stream(1).device.index == 1


def test_context_sets_and_restores() -> None:
    stream = torch.flagos.Stream()
    with torch.flagos.stream(stream):
        assert torch.flagos.current_stream() == stream
        assert torch.accelerator.current_stream() == stream
    assert torch.flagos.current_stream() == torch.flagos.default_stream()
    with torch.flagos.stream(None):
        assert torch.flagos.current_stream() == torch.flagos.default_stream()
    with torch.Stream(device="flagos") as generic:
        assert torch.flagos.current_stream() == generic
    assert torch.flagos.current_stream() == torch.flagos.default_stream()


def test_set_stream() -> None:
    stream = torch.flagos.Stream()
    torch.flagos.set_stream(stream)
    try:
        assert torch.flagos.current_stream() == stream
    finally:
        torch.flagos.set_stream(torch.flagos.default_stream())


def test_context_of_a_stream_on_another_device(second_device: str) -> None:
    stream = torch.flagos.Stream(device=second_device)
    with torch.flagos.stream(stream):
        assert torch.flagos.current_device() == 1
        assert torch.flagos.current_stream() == stream
        assert torch.ones(1, device="flagos").device.index == 1
    assert torch.flagos.current_device() == 0


def test_streams_differ_and_compare() -> None:
    first, second = torch.flagos.Stream(), torch.flagos.Stream()
    assert first != second
    assert first == first
    assert len({hash(first), hash(second)}) == 2
    assert isinstance(first, torch.Stream)
    assert torch.flagos.Stream(priority=-1).query()


def test_work_on_side_streams(device: str) -> None:
    streams = [torch.flagos.Stream() for _ in range(4)]
    x = sample(64, 64).to(device)
    results = []
    for stream in streams:
        stream.wait_stream(torch.flagos.current_stream())
        with torch.flagos.stream(stream):
            results.append(x @ x)
        torch.flagos.current_stream().wait_stream(stream)
    for stream in streams:
        stream.synchronize()
        assert stream.query()
    expected = sample(64, 64) @ sample(64, 64)
    assert all(torch.equal(result.cpu(), expected) for result in results)


def test_events_order_and_time(device: str) -> None:
    start, end = torch.flagos.Event(enable_timing=True), torch.flagos.Event(enable_timing=True)
    start.record()
    x = sample(200, 200).to(device)
    for _ in range(5):
        x = x @ x
    end.record()
    end.synchronize()
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) < 0


def test_generic_events() -> None:
    first, second = torch.Event("flagos", enable_timing=True), torch.Event("flagos", enable_timing=True)
    stream = torch.Stream("flagos")
    first.record(stream)
    stream.record_event(second)
    stream.wait_event(first)
    second.wait(torch.accelerator.current_stream())
    second.synchronize()
    assert first.elapsed_time(second) >= 0
    assert isinstance(torch.flagos.Event(), torch.Event)


def test_event_misuse_is_refused(second_device: str) -> None:
    timed, untimed = torch.flagos.Event(enable_timing=True), torch.flagos.Event()
    for event in (timed, untimed):
        event.record()
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)timing"):
        timed.elapsed_time(untimed)
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)record"):
        torch.flagos.Event(enable_timing=True).elapsed_time(timed)
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        timed.record(torch.flagos.Stream(device=second_device))


def test_backward_uses_the_stream_of_the_forward(device: str) -> None:
    stream = torch.flagos.Stream()
    x = sample(8, 8).to(device).requires_grad_()
    with torch.flagos.stream(stream):
        y = (x @ x).tanh()
    torch.flagos.current_stream().wait_stream(stream)
    y.sum().backward()
    expected = sample(8, 8).requires_grad_()
    (expected @ expected).tanh().sum().backward()
    assert torch.equal(x.grad.cpu(), expected.grad)


def test_synchronize_everything(second_device: str) -> None:
    torch.flagos.synchronize()
    torch.flagos.synchronize(second_device)
    torch.accelerator.synchronize()
