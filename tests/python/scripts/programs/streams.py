"""Trains on a side stream, times it with events, prints memory, and goes on from a checkpoint, on cuda.

It names cuda on purpose: the tests run it with `flagos run --as-cuda`.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

if not torch.cuda.is_available():
    sys.exit("this program needs CUDA")

torch.cuda.set_device(0)
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
device = torch.device("cuda:0")
print("device", torch.cuda.get_device_name(device), torch.cuda.device_count())

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.linspace(-1, 1, 64 * 16).reshape(64, 16).pin_memory()
y = x.sum(1, keepdim=True).sin()


def train(steps):
    side = torch.cuda.Stream()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        begin.record()
        for _ in range(steps):
            inputs, targets = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            assert inputs.is_cuda
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            print("loss", loss.item().hex())
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) >= 0


torch.cuda.reset_peak_memory_stats()
train(4)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    checkpoint = torch.load(path, map_location="cuda")
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
train(4)

peak, now = torch.cuda.max_memory_allocated() / 2**20, torch.cuda.memory_allocated() / 2**20
print(f"peak {peak:.2f} MiB, now {now:.2f} MiB")
torch.cuda.empty_cache()
