"""Complaint 13, leaks and wrong memory numbers: a thousand iterations leave the counters where they were.

torch-xpu-ops#1745, pytorch#161381, pytorch#194418, torch-xpu-ops#4487
"""

from __future__ import annotations

import gc

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos
functional = torch.nn.functional

ITERATIONS = 1000


def training(device: str):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 3)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss = functional.cross_entropy(
            model(torch.randn(4, 1, 8, 8, device=device)), torch.ones(4, device=device).long()
        )
        loss.backward()
        optimizer.step()

    return step


def views(device: str):
    x = sample(8, 8).to(device)

    def step() -> None:
        y = x.t()[1:].unfold(1, 2, 1).flatten(1)
        y.mul_(2)
        x.expand(3, 8, 8)[0].diagonal().add_(1)
        x.view(torch.int32).bitwise_and_(1)

    return step


def errors(device: str):
    x = sample(2, 3).to(device)

    def step() -> None:
        for wrong in (lambda: x @ x, lambda: x.view(7), lambda: x + x[0, :2], lambda: torch.add(x, x.cpu())):
            with pytest.raises(RuntimeError):
                wrong()

    return step


def resizing(device: str):
    def step() -> None:
        x = torch.ones(4, device=device).resize_(1000)
        x.untyped_storage().resize_(0)
        torch.add(x.new_ones(5), 1, out=torch.empty(0, device=device))
        x.data = torch.ones(3)

    return step


def moving(device: str):
    model = torch.nn.Linear(8, 8)

    def step() -> None:
        model.to(device)
        model(torch.ones(1, 8, device=device)).sum().backward()
        model.cpu()

    return step


@pytest.mark.parametrize("make", [training, views, errors, resizing, moving], ids=lambda make: make.__name__)
def test_counters_return(make, device: str) -> None:
    step = make(device)
    for _ in range(3):
        step()
    gc.collect()
    torch.flagos.reset_peak_memory_stats()
    before = torch.flagos.memory_stats()
    step()
    peak = torch.flagos.max_memory_allocated()
    for _ in range(ITERATIONS - 1):
        step()
    gc.collect()
    after = torch.flagos.memory_stats()
    for key in ("allocated_bytes.all.current", "allocation.all.current", "active_bytes.all.current"):
        assert after[key] == before[key], key
    assert torch.flagos.max_memory_allocated() <= peak
    assert after["num_ooms"] == before["num_ooms"]
    del step
    gc.collect()


def test_numbers_are_exact(device: str) -> None:
    """Bytes of live storages, each once: views, aliases and gradients of size zero add nothing."""
    gc.collect()
    start = torch.flagos.memory_allocated()
    x = torch.empty(1000, dtype=torch.float32, device=device)
    held = [x[1:], x.view(10, 100).t(), x.detach(), torch.nn.Parameter(x), x.expand(5, 1000)]
    one = torch.flagos.memory_allocated() - start
    assert one >= x.untyped_storage().nbytes() == 4000
    free, total = torch.flagos.mem_get_info()
    y = x.clone()
    assert torch.flagos.memory_allocated() - start == 2 * one
    assert torch.flagos.get_device_properties(0).total_memory == total >= free
    del x, y, held
    assert torch.flagos.memory_allocated() == start
