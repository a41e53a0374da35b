"""On which thread a backward pass runs: the calling one, unless the program asks for PyTorch's threads."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
import torch

pytestmark = pytest.mark.needs_flagos


class NoteThread(torch.autograd.Function):
    """The identity; its backward notes the thread that runs it."""

    seen: ClassVar[list[int]] = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        NoteThread.seen.append(threading.get_ident())
        return gradient.clone()


def threads_of_backward(device: str) -> tuple[int, int]:
    """The calling thread, and the thread that ran the backward pass."""
    NoteThread.seen.clear()
    x = torch.ones(3, device=device, requires_grad=True)
    NoteThread.apply(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    (ran,) = NoteThread.seen
    return threading.get_ident(), ran


def test_the_main_thread_runs_its_own(device: str) -> None:
    torch.ones(1, device=device)
    caller, ran = threads_of_backward(device)
    assert caller == ran


def test_other_threads_run_their_own(device: str) -> None:
    found: list[tuple[int, int]] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(threads_of_backward(device)))
        thread.start()
        thread.join()
    assert len(found) == 3
    assert all(caller == ran for caller, ran in found)


def test_a_program_that_asks_for_torchs_threads_gets_them(device: str) -> None:
    torch.ones(1, device=device)
    with torch.autograd.set_multithreading_enabled(True):
        caller, ran = threads_of_backward(device)
    assert caller != ran
    caller, ran = threads_of_backward(device)
    assert caller == ran


def test_gradients_of_two_devices_in_one_pass(device: str, second_device: str) -> None:
    x = torch.arange(4.0, device=device, requires_grad=True)
    y = torch.arange(4.0, device=second_device, requires_grad=True)
    ((x * 2).to(second_device) * y).sum().backward()
    assert x.grad.device.index == 0
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert y.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
