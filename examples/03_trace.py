"""Where does the time go? Run this file with `flagos trace examples/03_trace.py`.

The file itself knows nothing of tracing: it runs 20 steps of an attention block and prints one number. `flagos trace`
then prints the bill: calls, time and copied bytes for each operator overload and backend, the most expensive first,
and the number of round trips to the CPU, which is 0 on the accelerator `host`.
"""

import torch
from torch import nn

torch.manual_seed(0)
block = nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, dropout=0.0, batch_first=True).to("flagos")
optimizer = torch.optim.SGD(block.parameters(), lr=0.01)
tokens = torch.randn(8, 16, 64, device="flagos")

for _ in range(20):
    optimizer.zero_grad()
    loss = block(tokens).square().mean()
    loss.backward()
    optimizer.step()
print(f"loss after 20 steps: {loss.item():.5f}")
