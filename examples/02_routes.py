"""Every operator overload has a route, and you can change it and see what the change costs.

A variable FLAGOS_OP_<overload> beats the routing file; here it sends two overloads to `none`, PyTorch's way out where a
device has no kernel. `abs` is then decomposed: PyTorch writes it as `abs.out`, which has a route of its own. `flip` has
no decomposition, so it makes a round trip: copy to the CPU, compute, copy back. Prints the three routes with the place
each comes from, then what the calls did: `exp` ran on the device without a copy, `abs` as `abs.out`, and `flip` moved
its 4,000 bytes to the CPU and back.
"""

import os

# Read when the device is loaded, hence before the import. Overloads have their own case, and so has the variable.
os.environ["FLAGOS_OP_abs"] = "none"  # noqa: SIM112
os.environ["FLAGOS_OP_flip"] = "none"  # noqa: SIM112

import torch

for route in torch.flagos.routes():
    if route["overload"] in ("abs", "exp", "flip"):
        print(f"{route['overload']:4} = {route['route']:12} from {route['origin']}")

x = torch.randn(1000, device="flagos")
torch.flagos.reset_route_stats()
x.exp()
x.abs()
x.flip(0)
for stat in torch.flagos.route_stats():
    if stat["backend"] != "device":  # what the device serves itself, such as the allocation of each result
        moved = f"{stat['bytes_to_host']} bytes to the CPU, {stat['bytes_from_host']} back"
        print(f"{stat['overload']:7} ran on {stat['backend']:4} ({stat['reason']}), {stat['calls']} call, {moved}")
