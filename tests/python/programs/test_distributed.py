"""Two processes with gloo: data-parallel training on the device gives the CPU's parameters, or one clear error."""

from __future__ import annotations

import pytest

PROGRAM = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def train(rank, device, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(16, 4, generator=torch.Generator().manual_seed(5))
    for step in range(3):
        optimizer.zero_grad()
        part = data[rank::2].to(device)
        model(part).square().mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save([p.detach().cpu() for p in model.parameters()], path + ".parameters")
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1] if len(sys.argv) > 1 else DEVICE, PATH), nprocs=2)
"""


def run(run_python, device: str, path: str):
    import torch

    done = run_python(f"DEVICE, PATH = {device!r}, {path!r}\n{PROGRAM}", OMP_NUM_THREADS="1")
    return done, torch.load(f"{path}.parameters") if done.returncode == 0 else None


def test_data_parallel_training(run_python, tmp_path, device: str) -> None:
    import torch

    done, actual = run(run_python, device, str(tmp_path / "device"))
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if "Error" in line][-1]
        assert device in last, done.stderr
        assert "gloo" in done.stderr
        pytest.xfail(f"data-parallel training gives a clear error: {last}")
    reference, expected = run(run_python, "cpu", str(tmp_path / "cpu"))
    reference.check()
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
