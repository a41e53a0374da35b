"""Trains a small image classifier in mixed precision, as scripts for CUDA do it, and prints its losses.

It names cuda on purpose: the tests run it with `flagos run --as-cuda`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.benchmark = True
torch.manual_seed(0)

generator = torch.Generator().manual_seed(1)
labels = torch.arange(64) % 4
images = torch.randn(64, 1, 8, 8, generator=generator) + labels[:, None, None, None]
loader = DataLoader(TensorDataset(images, labels), batch_size=16, pin_memory=True)

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 4)
).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)

for _epoch in range(2):
    for batch, target in loader:
        batch = batch.cuda(non_blocking=True)
        target = target.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(batch)
        loss = criterion(output.float(), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        print("loss", loss.item().hex())
print("scale", scaler.get_scale())
