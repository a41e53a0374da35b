"""Creation, conversion and copies: values, dtypes, layouts, and the module moves that rest on them."""

from __future__ import annotations

import copy

import pytest
import torch
from parity import assert_equal, assert_same, assert_same_module, sample
from torch import nn

pytestmark = pytest.mark.contract("factories")

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip

FACTORIES = {
    "zeros": lambda d, t: torch.zeros(2, 3, dtype=t, device=d),
    "ones": lambda d, t: torch.ones(2, 3, dtype=t, device=d),
    "full": lambda d, t: torch.full((2, 3), 1, dtype=t, device=d),
    "scalar_tensor": lambda d, t: torch.scalar_tensor(1, dtype=t, device=d),
    "tensor": lambda d, t: torch.tensor([[0, 1], [1, 0]], dtype=t, device=d),
    "eye": lambda d, t: torch.eye(3, 4, dtype=t, device=d),
    "zeros_like": lambda d, t: torch.zeros_like(torch.ones(2, 3, dtype=t, device=d)),
    "ones_like": lambda d, t: torch.ones_like(torch.zeros(2, 3, dtype=t, device=d)),
    "full_like": lambda d, t: torch.full_like(torch.zeros(2, 3, dtype=t, device=d), 1),
    "new_zeros": lambda d, t: torch.ones(1, dtype=t, device=d).new_zeros(2, 3),
    "new_ones": lambda d, t: torch.ones(1, dtype=t, device=d).new_ones((2, 3)),
    "new_full": lambda d, t: torch.ones(1, dtype=t, device=d).new_full((2,), 1),
    "new_tensor": lambda d, t: torch.ones(1, dtype=t, device=d).new_tensor([1, 0]),
    "empty then fill": lambda d, t: torch.empty(2, 3, dtype=t, device=d).fill_(1),
    "empty_strided": lambda d, t: torch.empty_strided((2, 3), (1, 2), dtype=t, device=d).zero_(),
    "as_tensor": lambda d, t: torch.as_tensor([1, 0], dtype=t, device=d),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name: str, dtype: torch.dtype, device: str) -> None:
    assert_equal(FACTORIES[name](device, dtype), FACTORIES[name]("cpu", dtype), device)


RANGES = {
    "arange": lambda d: torch.arange(7, device=d),
    "arange step": lambda d: torch.arange(1, 2, 0.1, device=d),
    "arange bfloat16": lambda d: torch.arange(0, 9, 2, device=d, dtype=torch.bfloat16),
    "linspace": lambda d: torch.linspace(-1, 1, 11, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 5, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 4, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, device=d),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "empty 0": lambda d: torch.empty(0, device=d),
    "empty channels last": lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last).zero_(),
    "meshgrid": lambda d: torch.meshgrid(torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij"),
    "cartesian": lambda d: torch.cartesian_prod(torch.arange(2, device=d), torch.arange(3, device=d)),
    "fftfreq": lambda d: torch.fft.fftfreq(7, device=d),
}


@pytest.mark.parametrize("name", RANGES)
def test_range(name: str, device: str) -> None:
    assert_equal(RANGES[name](device), RANGES[name]("cpu"), device)


@pytest.mark.parametrize("way", ["argument", "context", "default"])
def test_default_device(way: str, device: str) -> None:
    if way == "argument":
        made = torch.zeros(2, device=torch.device(device))
    elif way == "context":
        with torch.device(device):
            made = torch.zeros(2)
    else:
        torch.set_default_device(device)
        try:
            made = torch.zeros(2)
        finally:
            torch.set_default_device(None)
    assert made.device.type == device
    assert torch.zeros(1).device.type == "cpu"


def test_bad_sizes_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch.empty(-1, device=device)
    with pytest.raises(RuntimeError):
        torch.empty_strided((2,), (-1,), device=device)


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_casting_copies_in_both_directions(target: torch.dtype, device: str) -> None:
    for dtype in DTYPES:
        x = sample(3, 4, dtype=dtype)
        if not target.is_floating_point and not target.is_complex:
            x = x.abs() if dtype != torch.bool else x  # a negative number has no defined unsigned value
        expected = x.to(target)
        moved = x.to(device)
        assert_equal(moved.to(target), expected, device)
        assert_equal(x.to(device, target), expected, device)
        assert_equal(moved.to("cpu", target), expected, "cpu")
        assert_equal(torch.empty(3, 4, dtype=target, device=device).copy_(x), expected, device)
        assert_equal(torch.empty(3, 4, dtype=target).copy_(moved), expected, "cpu")


COPIES = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[::2, 1::2],
    "expanded": lambda x: x[:1].expand(5, 6),
    "empty": lambda x: x[:0],
    "scalar": lambda x: x[0, 0],
}


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_round_trip(name: str, non_blocking: bool, device: str) -> None:
    x = COPIES[name](sample(4, 6))
    moved = x.to(device, non_blocking=non_blocking, copy=True)
    assert moved.stride() == x.to("cpu", copy=True).stride()
    back = moved.to("cpu", non_blocking=non_blocking)
    if non_blocking and device == "flagos":
        torch.flagos.synchronize()
    assert torch.equal(back, x)
    assert torch.equal(moved.clone().cpu(), x)


def test_broadcast_copies(device: str) -> None:
    for source in (sample(4), sample(3, 1), sample()):
        assert_equal(torch.zeros(3, 4, device=device).copy_(source), torch.zeros(3, 4).copy_(source), device)
        assert_equal(torch.zeros(3, 4).copy_(source.to(device)), torch.zeros(3, 4).copy_(source), "cpu")


def test_strided_targets(device: str) -> None:
    for cut in (lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:4]):
        actual, expected = torch.zeros(6, 6, device=device), torch.zeros(6, 6)
        value = sample(*cut(expected).shape)
        cut(actual).copy_(value)
        cut(expected).copy_(value)
        assert_equal(actual, expected, device)


def test_copy_is_made_only_when_asked(device: str) -> None:
    x = sample(3).to(device)
    assert x.to(device) is x
    assert x.to(device, copy=True).data_ptr() != x.data_ptr()
    assert x.clone().data_ptr() != x.data_ptr()
    assert x.contiguous() is x
    assert x.t().contiguous().data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    "memory_format", [torch.contiguous_format, torch.channels_last, torch.preserve_format], ids=str
)
def test_memory_formats(memory_format, device: str) -> None:
    x = sample(2, 3, 4, 5)
    for source in (x, x.contiguous(memory_format=torch.channels_last), x.permute(0, 2, 3, 1)):
        assert_same(
            lambda x: (x.clone(memory_format=memory_format), x.to(torch.float64, memory_format=memory_format)),
            source,
            device=device,
        )


@pytest.mark.parametrize("value", [0, -3, 2.5, True, 1 + 2j], ids=repr)
def test_item_and_conversions(value: complex, device: str) -> None:
    x = torch.tensor(value, device=device)
    assert x.item() == value
    assert x.tolist() == value
    assert type(x.item()) is type(value)
    assert bool(x) is bool(value)
    with pytest.raises(RuntimeError):
        torch.zeros(2, device=device).item()


def test_printing(device: str) -> None:
    text = repr(torch.tensor([1.5, 2.0], device=device))
    assert text.startswith("tensor([1.5000, 2.0000]")
    assert device == "cpu" or "device='flagos:0'" in text
    assert repr(torch.zeros(2, 3, dtype=torch.bool, device=device))


@pytest.mark.needs_flagos
def test_numpy_needs_the_cpu(device: str) -> None:
    x = sample(3)
    with pytest.raises(TypeError, match=r"(?i)cpu"):
        x.to(device).numpy()
    assert torch.equal(torch.from_numpy(x.to(device).cpu().numpy()), x)
    assert torch.equal(torch.as_tensor(x.numpy(), device=device).cpu(), x)


@pytest.mark.needs_flagos
def test_generated_methods(device: str) -> None:
    x = sample(3)
    assert x.flagos().is_flagos
    assert not x.is_flagos
    assert x.flagos().device == torch.device(device, 0)
    assert torch.equal(x.flagos().cpu(), x)
    assert nn.Linear(2, 2).flagos().weight.is_flagos
    assert x.untyped_storage().flagos().device.type == device
    assert torch.get_device_module(device) is torch.flagos


def tied() -> nn.Module:
    model = nn.ModuleDict({"input": nn.Embedding(7, 4), "output": nn.Linear(4, 7, bias=False)})
    model["output"].weight = model["input"].weight
    return model


@pytest.mark.parametrize("way", ["to", "to dtype", "round trip", "apply"])
def test_tied_parameters_stay_tied(way: str, device: str) -> None:
    model = tied()
    parameter = model["input"].weight
    if way == "to":
        model.to(device)
    elif way == "to dtype":
        model.to(device, torch.bfloat16)
    elif way == "round trip":
        model.to(device).cpu().to(device)
    else:
        model._apply(lambda tensor: tensor.to(device))
    assert model["output"].weight is model["input"].weight is parameter
    assert parameter.device.type == device
    assert len(list(model.parameters())) == 1


def test_optimizer_made_before_the_move_still_works(device: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to(device)
    before = model.weight.detach().cpu().clone()
    model(sample(4, 3).to(device)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight.detach().cpu(), before)


def test_assigning_data_across_devices(device: str) -> None:
    parameter = nn.Parameter(sample(3))
    identity = id(parameter)
    parameter.data = parameter.data.to(device)
    assert parameter.device.type == device
    parameter.data = parameter.data.cpu()
    assert parameter.device.type == "cpu"
    assert id(parameter) == identity
    assert torch.equal(parameter.detach(), sample(3))


def test_module_to_the_cpu_after_a_forward(device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    model(sample(5, 3).to(device)).sum().backward()
    model.cpu()
    assert {p.device.type for p in model.parameters()} | {p.grad.device.type for p in model.parameters()} == {"cpu"}
    model(sample(5, 3))


def test_deepcopy(device: str) -> None:
    x = sample(3, 4).to(device)
    view = x[1:]
    y, z = copy.deepcopy([x, view])
    assert y.data_ptr() != x.data_ptr()
    assert z.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert_equal([y, z], [sample(3, 4), sample(3, 4)[1:]], device)
    model = copy.deepcopy(tied().to(device))
    assert model["output"].weight is model["input"].weight


def test_activations_and_autograd(device: str) -> None:
    for layer in (
        nn.ReLU,
        nn.GELU,
        nn.SiLU,
        nn.ELU,
        nn.LeakyReLU,
        nn.Softplus,
        nn.Hardswish,
        nn.Mish,
        nn.Sigmoid,
        nn.Tanh,
    ):
        assert_same_module(layer, sample(4, 5, requires_grad=True), device=device)


@pytest.mark.needs_flagos
def test_synchronize(device: str, second_device: str) -> None:
    for argument in (None, 0, 1, device, second_device, torch.device(second_device)):
        torch.flagos.synchronize(argument)
    torch.accelerator.synchronize()
