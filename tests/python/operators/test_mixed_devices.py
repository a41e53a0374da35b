"""Operands on different devices: refused in words that name flagos, except where CUDA takes a CPU operand too."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, sample
from torch.nn import functional

pytestmark = [pytest.mark.contract("operators"), pytest.mark.needs_flagos]

REFUSED = {
    "add": lambda x, c: x + c,
    "add reversed": lambda x, c: c + x,
    "add in place": lambda x, c: x.add_(c),
    "add in place on the CPU": lambda x, c: c.add_(x),
    "add a device scalar to the CPU": lambda x, c: c.add_(x[0, 0]),
    "mul out on the CPU": lambda x, c: torch.mul(x, x, out=c),
    "mul out on the device": lambda x, c: torch.mul(c, c, out=x),
    "eq": lambda x, c: x == c,
    "maximum": lambda x, c: torch.maximum(x, c),
    "where": lambda x, c: torch.where(x > 0, x, c),
    "where by CPU mask": lambda x, c: torch.where(c > 0, x, x),
    "lerp": lambda x, c: torch.lerp(x, c, 0.5),
    "addcmul": lambda x, c: torch.addcmul(x, c, x),
    "clamp": lambda x, c: torch.clamp(x, c),
    "clamp by a scalar tensor": lambda x, c: torch.clamp(x, c[0, 0]),
    "mm": lambda x, c: torch.mm(x, c),
    "mm reversed": lambda x, c: torch.mm(c, x),
    "addmm": lambda x, c: torch.addmm(c, x, x),
    "bmm": lambda x, c: torch.bmm(x[None], c[None]),
    "linear": lambda x, c: functional.linear(x, c),
    "linear bias": lambda x, c: functional.linear(x, x, c[0]),
    "conv1d": lambda x, c: functional.conv1d(x[None], c[:, :, None]),
    "cat": lambda x, c: torch.cat([x, c]),
    "stack": lambda x, c: torch.stack([x, c]),
    "embedding": lambda x, c: functional.embedding(torch.tensor([0, 1]), x),
    "gather": lambda x, c: x.gather(1, torch.zeros(3, 1, dtype=torch.int64)),
    "scatter": lambda x, c: x.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 1.0),
    "index_select": lambda x, c: x.index_select(0, torch.tensor([0, 1])),
    "index of the CPU by the device": lambda x, c: c[torch.zeros(1, dtype=torch.int64, device=x.device)],
    "masked_fill": lambda x, c: x.masked_fill(c > 0, 1.0),
    "masked_select": lambda x, c: x.masked_select(c > 0),
    "nll_loss": lambda x, c: functional.nll_loss(x, torch.tensor([0, 1, 2])),
    "mse_loss": lambda x, c: functional.mse_loss(x, c),
    "layer_norm": lambda x, c: functional.layer_norm(x, (3,), c[0], c[0]),
    "batch_norm": lambda x, c: functional.batch_norm(x, c[0].clone(), c[1].clone()),
    "softmax out": lambda x, c: torch.softmax(x, 1, out=c),
    "sum out": lambda x, c: torch.sum(x, 1, out=c[0].clone()),
    "set_": lambda x, c: x.set_(c),
    "attention": lambda x, c: functional.scaled_dot_product_attention(x[None], c[None], x[None]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, device: str) -> None:
    x, c = sample(3, 3).to(device), sample(3, 3, seed=8)
    with pytest.raises(RuntimeError) as raised:
        REFUSED[name](x, c)
    text = str(raised.value)
    assert "flagos" in text, text
    assert "cuda" not in text, text
    assert "privateuse" not in text.lower(), text
    assert torch.equal(c, sample(3, 3, seed=8))
    assert torch.equal(x.cpu(), sample(3, 3))


def test_both_devices_are_named(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)(flagos:0.*cpu|cpu.*flagos:0)"):
        torch.mm(sample(3, 3).to(device), sample(3, 3))


ALLOWED = {
    "add": lambda x, s: x + s,
    "add reversed": lambda x, s: s + x,
    "sub": lambda x, s: s - x,
    "mul in place": lambda x, s: x.mul_(s),
    "div": lambda x, s: x / s,
    "pow": lambda x, s: x.abs() ** s,
    "eq": lambda x, s: x == s,
    "maximum": lambda x, s: torch.maximum(x, s),
    "where": lambda x, s: torch.where(x > 0, x, s),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "index_put": lambda x, s: x.index_put((torch.tensor([0]),), s),
    "lerp weight": lambda x, s: torch.lerp(x, x * 2, s),
    "addcmul": lambda x, s: torch.addcmul(x, x, s),
    "foreach_mul": lambda x, s: torch._foreach_mul([x, x], s),
    "fill_": lambda x, s: x.fill_(s),
    "promotion": lambda x, s: x + s.double(),
    "copy_": lambda x, s: x.copy_(s),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_cpu_scalar_tensor_is_taken(name: str, device: str) -> None:
    scalar = torch.tensor(0.75)
    assert_equal(ALLOWED[name](sample(3, 4).to(device), scalar), ALLOWED[name](sample(3, 4), scalar), device)


def test_cpu_vector_of_one_element_is_not_a_scalar(device: str) -> None:
    with pytest.raises(RuntimeError, match="flagos"):
        sample(3).to(device) + torch.ones(1)


def test_two_indices_of_the_device_do_not_mix(device: str, second_device: str) -> None:
    x, y = sample(3, 3).to(device), sample(3, 3).to(second_device)
    for compute in (torch.add, torch.mm, lambda x, y: torch.cat([x, y]), lambda x, y: x.add_(y[0, 0])):
        with pytest.raises(RuntimeError, match=r"flagos:[01]"):
            compute(x, y)


def test_copies_between_places(device: str, second_device: str) -> None:
    x = sample(4, 5)
    assert torch.equal(x.to(device).to(second_device).cpu(), x)
    target = torch.empty(5, 4, dtype=torch.float64, device=second_device).t()
    target.copy_(x.to(device))
    assert torch.equal(target.cpu(), x.double())


def test_module_on_the_wrong_device(device: str) -> None:
    with pytest.raises(RuntimeError, match="flagos"):
        torch.nn.Conv2d(1, 1, 1).to(device)(sample(1, 1, 2, 2))
