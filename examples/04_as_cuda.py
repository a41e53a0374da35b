"""A script that names cuda, run on flagos with no change to it: `flagos run --as-cuda examples/04_as_cuda.py`.

Trains a small network in mixed precision as scripts for CUDA do. Prints the loss, which falls, and where the model is;
the command lists on stderr which lines named cuda. Under `python` it needs a CUDA device.
"""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 256).unsqueeze(1).cuda()
y = torch.sin(x)

model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda")
for step in range(201):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
torch.cuda.synchronize()
print(f"the model is on {next(model.parameters()).device}")
