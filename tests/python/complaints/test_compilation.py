"""Complaint 11, torch.compile and its lists of devices: graph backends run, the others say in one text what to do.

pytorch#101326, pytorch#171956, pytorch#171969, pytorch#189367, pytorch#190326
"""

from __future__ import annotations

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos


def step(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        y = x @ x
    return torch.nn.functional.dropout(y.float().relu(), 0.5) + torch.zeros(x.shape[0], device=x.device)[:, None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_whole_graph_with_random_numbers_and_autocast(backend: str, dynamic: bool, device: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(step, backend=backend, fullgraph=True, dynamic=dynamic)
    for size in (4, 5):
        x = sample(size, size).to(device)
        torch.manual_seed(1)
        found = compiled(x)
        torch.manual_seed(1)
        assert torch.equal(found, step(x))
        assert found.device.type == device


@pytest.mark.parametrize("options", [{}, {"mode": "max-autotune"}, {"mode": "reduce-overhead"}], ids=str)
def test_inductor_says_what_to_use(options: dict, device: str) -> None:
    torch.compiler.reset()
    with pytest.raises(Exception, match="aot_eager") as raised:
        torch.compile(step, **options)(sample(4, 4).to(device))
    assert device in str(raised.value)
    assert "privateuse" not in str(raised.value).lower()


def test_optimizer_step_and_device_functions_inside(device: str) -> None:
    torch.compiler.reset()
    model = torch.nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(sample(4, 3).to(device)).sum().backward()
    before = model.weight.detach().clone()
    torch.compile(optimizer.step, backend="aot_eager")()
    assert not torch.equal(model.weight, before)

    def asks(x: torch.Tensor) -> torch.Tensor:
        with torch.flagos.device(0):
            return x + torch.flagos.current_device() + torch.flagos.is_available()

    assert torch.equal(torch.compile(asks, backend="aot_eager")(sample(3).to(device)).cpu(), sample(3) + 1)
