"""Complaint 9, a second accelerator in the process: flagos stays out where it would break CUDA.

pytorch#161129, pytorch#166696. Interface-complete, hardware-unverified: that CUDA's backward works while flagos stays
out needs a GPU; here the decision alone is shown.
"""

from __future__ import annotations

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos


@pytest.mark.parametrize(("built", "gpu", "asked", "stays_out"), [
    (True, True, "", True),
    (True, False, "", False),
    (False, True, "", False),
    (True, True, "host", False),
])  # fmt: skip
def test_decision(built: bool, gpu: bool, asked: str, stays_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fl import _autoload

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(_autoload, "_may_have_gpu", lambda: gpu)
    monkeypatch.setenv("FLAGOS_ACCELERATOR", asked)
    reason = _autoload.reason_to_stay_out()
    assert (reason is not None) is stays_out
    if reason:
        assert "FLAGOS_ACCELERATOR" in reason
        assert "import torch_fl" in reason


def test_backward_over_cpu_tensors_beside_the_device(device: str) -> None:
    x = sample(4, 4).requires_grad_()
    y = sample(4, 4).to(device).requires_grad_()
    ((x @ x).sum() + (y @ y).sum().cpu()).backward()
    assert x.grad.device.type == "cpu"
    assert y.grad.device.type == device
    assert torch.equal(x.grad, y.grad.cpu())


def test_a_graph_over_two_devices_and_the_cpu(device: str, second_device: str) -> None:
    def run(first: str, second: str) -> list[torch.Tensor]:
        w = sample(4, 4).requires_grad_()
        a = (w.to(first, copy=True) @ w.to(first, copy=True)).tanh()
        b = (a.to(second) @ w.to(second, copy=True)).to(first)
        (a + b).cpu().sum().backward()
        return [w.grad]

    assert torch.equal(run(device, second_device)[0], run("cpu", "cpu")[0])
