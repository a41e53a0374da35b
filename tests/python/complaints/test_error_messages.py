"""Complaint 18, errors about a missing derivative or hook that nobody understands: they name operator and device.

pytorch#163979, pytorch#179008
"""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.needs_flagos

LIBRARY = torch.library.Library("flagos_complaints", "DEF")
LIBRARY.define("no_derivative(Tensor x) -> Tensor")
LIBRARY.impl("no_derivative", lambda x: torch.from_numpy(x.detach().numpy() * 2), "CPU")


def test_backward_through_an_operator_without_a_derivative_warns_by_name(device: str) -> None:
    x = sample(3).to(device).requires_grad_()
    y = torch.ops.flagos_complaints.no_derivative(x)
    assert torch.equal(y.detach().cpu(), sample(3) * 2)
    with pytest.warns(UserWarning, match="flagos_complaints::no_derivative"):
        y.sum().backward()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, scale):
        context.scale = scale
        context.mark_non_differentiable(mask := x > 0)
        context.save_for_backward(x, mask)
        return x * scale, mask

    @staticmethod
    def backward(context, gradient, _):
        x, mask = context.saved_tensors
        assert gradient.device == x.device == mask.device
        return gradient * context.scale * mask, None


class WrongDevice(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient.cpu()


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def test_custom_functions(device: str) -> None:
    assert_same(lambda x: Doubled.apply(x, 3.0)[0], sample(4, requires_grad=True), device=device, backward=True)
    assert_same(lambda x: InPlace.apply(x * 1), sample(4, requires_grad=True), device=device, backward=True)


def raised_by(action) -> str:
    with pytest.raises(RuntimeError) as raised:
        action()
    text = str(raised.value)
    assert "privateuse" not in text.lower(), text
    return text


def modified_in_place(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def returned_elsewhere(device: str) -> None:
    WrongDevice.apply(torch.ones(3, device=device, requires_grad=True)).sum().backward()


MESSAGES = {
    "gradient of another device": (returned_elsewhere, "flagos"),
    "modified in place": (modified_in_place, "inplace operation"),
    "no gradient": (lambda d: torch.ones(3, device=d).sum().backward(), "does not require grad"),
    "not a scalar": (lambda d: torch.ones(3, device=d, requires_grad=True).mul(2).backward(), "scalar outputs"),
    "leaf in place": (lambda d: torch.ones(3, device=d, requires_grad=True).add_(1), "leaf Variable"),
    "two devices": (lambda d: torch.ones(3, device=d) + torch.ones(3), "flagos:0 and cpu"),
    "module elsewhere": (lambda d: torch.nn.Linear(3, 2)(torch.ones(1, 3, device=d)), "flagos"),
    "index": (lambda d: torch.ones(3, device="flagos:77"), "77"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_text(name: str, device: str) -> None:
    action, word = MESSAGES[name]
    assert word in raised_by(lambda: action(device))
