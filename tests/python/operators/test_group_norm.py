"""group_norm, first and second derivatives: the CPU's bits and strides, also for channels-last inputs."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

FORMATS = {
    "contiguous": ((2, 6, 5, 4), torch.contiguous_format),
    "channels last": ((2, 6, 5, 4), torch.channels_last),
    "channels last 3d": ((2, 6, 3, 5, 4), torch.channels_last_3d),
}


@pytest.mark.contract("operators")
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", FORMATS)
def test_gradients(name: str, dtype: torch.dtype, affine: bool, device: str) -> None:
    shape, memory_format = FORMATS[name]
    inputs = [sample(*shape, dtype=dtype).contiguous(memory_format=memory_format).requires_grad_()]
    if affine:
        inputs += [sample(6, dtype=dtype, seed=seed, requires_grad=True) for seed in (1, 2)]
    upstream = sample(*shape, dtype=dtype, seed=3).contiguous(memory_format=memory_format)

    def compute(upstream: torch.Tensor, *leaves: torch.Tensor) -> list[torch.Tensor | None]:
        output = torch.nn.functional.group_norm(leaves[0], 3, *leaves[1:])
        once = torch.autograd.grad(output, leaves, upstream, retain_graph=True)
        first = torch.autograd.grad(output, leaves, upstream, create_graph=True)
        second = torch.autograd.grad(first[0].pow(2).sum(), leaves, allow_unused=True)
        return [output, *once, *first, *second]

    assert_same(compute, upstream, *inputs, device=device)


@pytest.mark.needs_flagos
def test_a_route_of_the_normalisation_holds() -> None:
    """Somebody else than the accelerator normalises: the call must reach him, whatever the format."""
    x = sample(2, 6, 5, 4).contiguous(memory_format=torch.channels_last).to("flagos").requires_grad_()
    from torch_fl import _C

    _C.reset_route_stats()
    _C.set_route("native_group_norm", "none")
    try:
        torch.nn.functional.group_norm(x, 3).sum().backward()
    finally:
        _C.clear_route_overrides()
    served = {(row["overload"], row["backend"]) for row in torch.flagos.route_stats()}
    assert ("native_group_norm", "none") in served
    assert ("group_norm", "host") not in served
