"""Complaint 12, stream order, record_stream and a stale current device: results and the current device stay right.

torchrec#4231, ROCm/pytorch#3194, Torch-FL#322. Interface-complete, hardware-unverified: calls on `host` have finished
when they return, so that work which overlaps, and memory reused too early, can only be seen on an accelerator.
"""

from __future__ import annotations

import threading

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos


def refused(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x


#: Each works on the second device while the first is current, or fails there.
WORK = {
    "operator": lambda d: torch.ones(3, device=d) + 1,
    "copy": lambda d: torch.ones(3, device=d).cpu(),
    "copy between devices": lambda d: torch.ones(3, device=d).to("flagos:0"),
    "backward": lambda d: (torch.ones(3, device=d, requires_grad=True) * 2).sum().backward(),
    "random": lambda d: torch.randn(3, device=d),
    "module": lambda d: torch.nn.LSTM(2, 2).to(d)(torch.ones(1, 1, 2, device=d)),
    "error": lambda d: refused(torch.ones(2, 3, device=d)),
    "synchronize": lambda d: torch.flagos.synchronize(d),
    "stream": lambda d: torch.flagos.Stream(d).synchronize(),
    "event": lambda d: torch.flagos.current_stream(d).record_event().synchronize(),
    "free": lambda d: torch.ones(3, device=d).untyped_storage().resize_(0),
}


@pytest.mark.parametrize("name", WORK)
def test_current_device_is_left_alone(name: str, second_device: str) -> None:
    assert torch.flagos.current_device() == 0
    stream = torch.flagos.current_stream()
    WORK[name](second_device)
    assert torch.flagos.current_device() == torch.accelerator.current_device_index() == 0
    assert torch.flagos.current_stream() == stream
    assert torch.ones(1, device="flagos").device.index == 0


def test_streams_hand_work_over_through_events(device: str) -> None:
    first, second = torch.flagos.Stream(), torch.flagos.Stream()
    x = sample(64, 64).to(device)
    with torch.flagos.stream(first):
        y = x @ x
        x.record_stream(first)
        ready = first.record_event()
    second.wait_event(ready)
    with torch.flagos.stream(second):
        z = y.relu()
        y.record_stream(second)
    torch.flagos.current_stream().wait_stream(second)
    del x, y
    noise = [torch.full((64, 64), float("nan"), device=device) for _ in range(8)]
    assert torch.equal(z.cpu(), (sample(64, 64) @ sample(64, 64)).relu())
    assert len(noise) == 8


def test_threads_with_devices_and_streams_of_their_own(device: str, second_device: str) -> None:
    found: dict[int, tuple] = {}

    def work(index: int) -> None:
        torch.flagos.set_device(index)
        with torch.flagos.stream(torch.flagos.Stream()):
            x = torch.ones(8, device=device, requires_grad=True)
            (x * (index + 2)).sum().backward()
            found[index] = (x.device.index, torch.flagos.current_device(), x.grad.sum().item())

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: (0, 0, 16.0), 1: (1, 1, 24.0)}
    assert torch.flagos.current_device() == 0
