"""Training works as on any device: move the model and the data, change nothing else.

Fits a small network to sin(x) with Adam. Prints the loss every 100 steps (it falls below 0.01), the peak memory of the
device, and that a checkpoint written from flagos loads on the CPU and predicts the same.
"""

import io

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 512, device="flagos").unsqueeze(1)
y = torch.sin(x)

model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).to("flagos")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(501):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:3}: loss {loss.item():.5f}")
print(f"peak memory: {torch.flagos.max_memory_allocated():,} bytes")

checkpoint = io.BytesIO()
torch.save(model.state_dict(), checkpoint)
checkpoint.seek(0)
on_cpu = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
on_cpu.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
print("same predictions on the CPU:", torch.allclose(on_cpu(x.cpu()), model(x).cpu()))
