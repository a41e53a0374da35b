"""Every operator overload has a route, and you can change it and see what the change costs.

A variable FLAGOS_OP_<overload> beats the routing file; here it sends `abs` to `none`, PyTorch's way out where a device
has no kernel: copy to the CPU, compute, copy back. Prints the routes of two overloads with the place each comes from,
then what two calls did: `exp` ran on the device without a copy, `abs` moved its 4,000 bytes to the CPU and back.
"""

import os

# Read when the device is loaded, hence before the import. Overloads have their own case, and so has the variable.
os.environ["FLAGOS_OP_abs"] = "none"  # noqa: SIM112

import torch

for route in torch.flagos.routes():
    if route["overload"] in ("abs", "exp"):
        print(f"{route['overload']:4} = {route['route']:12} from {route['origin']}")

x = torch.randn(1000, device="flagos")
torch.flagos.reset_route_stats()
x.abs()
x.exp()
for stat in torch.flagos.route_stats():
    moved = f"{stat['bytes_to_host']} bytes to the CPU, {stat['bytes_from_host']} back"
    print(f"{stat['overload']:4} ran on {stat['backend']:5} ({stat['reason']}), {stat['calls']} call, {moved}")
