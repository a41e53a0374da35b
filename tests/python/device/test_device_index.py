"""Which of several devices a tensor lands on: a given index, else the current device; compute follows its data."""

from __future__ import annotations

import pytest
import torch
from parity import sample

pytestmark = [pytest.mark.contract("factories"), pytest.mark.needs_flagos]

FACTORIES = {
    "empty": lambda d: torch.empty(2, device=d),
    "empty_strided": lambda d: torch.empty_strided((2,), (1,), device=d),
    "zeros": lambda d: torch.zeros(2, device=d),
    "ones": lambda d: torch.ones(2, device=d),
    "full": lambda d: torch.full((2,), 1.0, device=d),
    "arange": lambda d: torch.arange(3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "eye": lambda d: torch.eye(2, device=d),
    "rand": lambda d: torch.rand(2, device=d),
    "randn": lambda d: torch.randn(2, device=d),
    "randint": lambda d: torch.randint(5, (2,), device=d),
    "randperm": lambda d: torch.randperm(5, device=d),
    "tensor": lambda d: torch.tensor([1.0], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(1.0, device=d),
    "to": lambda d: torch.ones(2).to(d),
    "complex": lambda d: torch.zeros(2, dtype=torch.complex64, device=d),
}


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name: str, current: int, device: str, second_device: str) -> None:
    with torch.flagos.device(current):
        assert FACTORIES[name](f"{device}:0").device.index == 0
        assert FACTORIES[name](second_device).device.index == 1
        assert FACTORIES[name](torch.device(device, 1)).device.index == 1
        assert FACTORIES[name](device).device.index == current
        assert torch.flagos.current_device() == current


LIKES = {
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 2),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
    "new_zeros": lambda x: x.new_zeros(2),
    "new_empty": lambda x: x.new_empty(2),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "clone": torch.clone,
}


@pytest.mark.parametrize("name", LIKES)
def test_like_follows_its_source(name: str, second_device: str) -> None:
    assert LIKES[name](torch.ones(2, device=second_device)).device == torch.device(second_device)


COMPUTE = {
    "add": lambda x: x + x,
    "add scalar": lambda x: x + 1,
    "add CPU scalar tensor": lambda x: x + torch.tensor(1.0),
    "mul in place": lambda x: x.mul_(2),
    "mm": lambda x: x @ x,
    "sum": lambda x: x.sum(),
    "max": lambda x: x.max(0).values,
    "softmax": lambda x: x.softmax(0),
    "cat": lambda x: torch.cat([x, x]),
    "view": lambda x: x.view(-1)[1:],
    "index": lambda x: x[torch.tensor([0, 1])],
    "nonzero": lambda x: x.nonzero(),
    "sort": lambda x: x.sort().values,
    "conversion": lambda x: x.to(torch.float64),
    "contiguous": lambda x: x.t().contiguous(),
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "bernoulli": torch.bernoulli,
}


@pytest.mark.parametrize("name", COMPUTE)
def test_compute_follows_its_operand(name: str, second_device: str) -> None:
    torch.flagos.set_device(0)
    result = COMPUTE[name](sample(4, 4).sigmoid().to(second_device))
    assert result.device == torch.device(second_device)
    assert torch.flagos.current_device() == 0


def test_backward_follows_its_operand(second_device: str) -> None:
    x = sample(3, 3).to(second_device).requires_grad_()
    (x @ x).exp().sum().backward()
    assert x.grad.device == torch.device(second_device)
    assert torch.flagos.current_device() == 0


def test_context_restores_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), torch.flagos.device(1):
        raise ValueError("inside")
    assert torch.flagos.current_device() == 0


@pytest.mark.parametrize("argument", [None, -1])
def test_context_without_a_device_changes_nothing(argument) -> None:
    with torch.flagos.device(argument):
        assert torch.flagos.current_device() == 0


def test_context_of_a_tensor(second_device: str) -> None:
    with torch.flagos.device_of(torch.zeros(1, device=second_device)):
        assert torch.flagos.current_device() == 1
    with torch.flagos.device_of(torch.zeros(1)):
        assert torch.flagos.current_device() == 0


def test_set_device_forms(device: str, second_device: str) -> None:
    for argument in (1, second_device, torch.device(second_device)):
        torch.flagos.set_device(argument)
        assert torch.flagos.current_device() == 1
        torch.flagos.set_device(0)
    torch.flagos.set_device(-1)
    assert torch.flagos.current_device() == 0


@pytest.mark.parametrize("index", [7, 100])
def test_index_out_of_range(index: int, device: str) -> None:
    count = torch.flagos.device_count()
    assert index >= count
    for action in (
        lambda: torch.empty(1, device=f"{device}:{index}"),
        lambda: torch.ones(1).to(f"{device}:{index}"),
        lambda: torch.flagos.set_device(index),
        lambda: torch.flagos.get_device_properties(index),
        lambda: torch.Generator(f"{device}:{index}"),
    ):
        with pytest.raises((RuntimeError, ValueError, AssertionError), match=str(index)):
            action()


def test_current_device_is_kept_by_each_thread() -> None:
    import threading

    seen = []

    def work() -> None:
        torch.flagos.set_device(1)
        seen.append(torch.flagos.current_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
    assert torch.flagos.current_device() == 0
