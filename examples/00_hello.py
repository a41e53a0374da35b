"""A tensor on flagos: `import torch` is all it takes.

Prints the devices, a product of two matrices and where it lives, its difference from the CPU's product (0.0 on the
accelerator `host`), and what importing nothing but torch gave us.
"""

import torch

for index in range(torch.flagos.device_count()):
    print(f"flagos:{index} is {torch.flagos.get_device_name(index)}")

a = torch.randn(3, 4)
b = torch.randn(4, 2)
product = a.to("flagos") @ b.to("flagos")
print(product)
print("lives on", product.device)
print("largest difference from the CPU:", (product.cpu() - a @ b).abs().max().item())
print("torch's accelerator here:", torch.accelerator.current_accelerator())
