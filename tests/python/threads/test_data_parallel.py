"""Data-parallel training with gradient hooks while other threads compute and routes change: the CPU's parameters."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

PROGRAM = """
import random, sys, threading, time, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def halved(state, bucket):
    # A hook in Python: it runs when a bucket is ready, during backward, and again when the gradients have arrived.
    buffer = bucket.buffer().div_(2)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0])

def beside(device, stop, failures, swaps):
    from torch_fl import _C
    choices = random.Random(1)
    weight = torch.ones(8, 8, device=device, requires_grad=True)
    try:
        while not stop.is_set():
            (gradient,) = torch.autograd.grad((torch.ones(3, 8, device=device) @ weight).sum(), weight)
            assert gradient.tolist() == [[3.0] * 8] * 8
            if swaps:
                for overload in ("addmm", "tanh_backward"):
                    _C.set_route(overload, choices.choice(("none", "host")))
            time.sleep(0.01)
    except BaseException as error:
        failures.append(error)

def train(rank, device, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    stop, failures = threading.Event(), []
    number = 0 if device == "cpu" else 3
    threads = [threading.Thread(target=beside, args=(device, stop, failures, index == 0)) for index in range(number)]
    for thread in threads:
        thread.start()
    torch.default_generator.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), bucket_cap_mb=0.0001)
    model.register_comm_hook(None, halved)
    seen = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    data = torch.randn(16, 4, generator=torch.Generator().manual_seed(5))
    for step in range(5):
        optimizer.zero_grad()
        with model.no_sync():
            model(data[rank::4].to(device)).sum().backward()
        model(data[rank::2].to(device)).square().mean().backward()
        optimizer.step()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(seen) == 2 * 5 * 6, len(seen)
    torch.save([p.detach().cpu() for p in model.parameters()], f"{path}.parameters{rank}")
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(DEVICE, PATH), nprocs=2)
"""


def parameters(run_python, device: str, path: str) -> list[list[torch.Tensor]]:
    run_python(f"DEVICE, PATH = {device!r}, {path!r}\n{PROGRAM}", OMP_NUM_THREADS="1").check()
    return [torch.load(f"{path}.parameters{rank}") for rank in range(2)]


def test_hooks_beside_busy_threads(run_python, tmp_path, device: str) -> None:
    expected = parameters(run_python, "cpu", str(tmp_path / "cpu"))
    actual = parameters(run_python, device, str(tmp_path / "device"))
    for found, wanted in zip(actual, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
