"""Complaint 8, moving a model un-ties its weights or raises: parameters stay the objects that they were.

pytorch#196975, pytorch#172564, pytorch#170401, transformers#41708
"""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from parity import assert_equal, sample
from torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Embedding(7, 4)
        self.layer = nn.Linear(4, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.input.weight
        self.register_buffer("scale", torch.ones(1))
        self.same_scale = self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.layer(self.input(x)).tanh()) * self.scale


def trained(place: str, order: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = Tied()
    if order == "optimizer, then move":
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model.to(place)
    elif order == "step, then move":
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model(torch.arange(3)).sum().backward()
        optimizer.step()
        model.to(place)
        # Gradients move with their parameters; the optimizer's state is brought along by its own loading.
        optimizer.load_state_dict(optimizer.state_dict())
    else:
        model.to(place)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.arange(7, device=place)).square().mean().backward()
        optimizer.step()
    assert model.output.weight is model.input.weight
    assert len(list(model.parameters())) == 3
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in model.parameters()}
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("order", ["move, then optimizer", "optimizer, then move", "step, then move"])
def test_training_a_tied_model_is_independent_of_the_order(order: str, device: str) -> None:
    assert_equal(trained(device, order), trained("cpu", order), device)


MOVES = {
    "to": lambda m, d: m.to(d),
    "to twice": lambda m, d: m.to(d).to(d),
    "there and back": lambda m, d: m.to(d).cpu().to(d),
    "dtype and back": lambda m, d: m.to(d).double().float(),
    "to_empty": lambda m, d: m.to_empty(device=d),
    "device and memory format": lambda m, d: m.to(device=d, memory_format=torch.channels_last),
    "parts one by one": lambda m, d: [part.to(d) for part in m.children()] and m.to(d),
}


@pytest.mark.parametrize("name", MOVES)
def test_identity_after_a_move(name: str, device: str) -> None:
    model = Tied()
    before = {key: id(p) for key, p in model.named_parameters(remove_duplicate=False)}
    MOVES[name](model, device)
    if name != "to_empty":  # which makes new parameters, on every device
        assert {key: id(p) for key, p in model.named_parameters(remove_duplicate=False)} == before
    assert model.output.weight is model.input.weight
    assert all(isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad for p in model.parameters())
    assert {t.device.type for t in model.state_dict().values()} == {device}


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save", "share"])
def test_copies_of_a_tied_model(way: str, device: str) -> None:
    model = Tied().to(device)
    model(torch.arange(3, device=device)).sum().backward()
    if way == "deepcopy":
        other = copy.deepcopy(model)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(model))
    elif way == "save":
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    else:
        other = Tied().to(device)
        other.load_state_dict(model.state_dict())
    assert other.output.weight is other.input.weight
    assert other.input.weight is not model.input.weight
    assert other.input.weight.data_ptr() != model.input.weight.data_ptr()
    assert_equal(other.input.weight.detach(), model.input.weight.detach().cpu(), device)


def test_data_may_be_replaced_across_devices_dtypes_and_sizes(device: str) -> None:
    parameter = nn.Parameter(sample(3))
    alias = parameter
    for value in (sample(3).to(device), sample(2, 2).to(device), sample(3).double().to(device), sample(5)):
        parameter.data = value
        assert parameter is alias
        assert (parameter.device, parameter.dtype, parameter.shape) == (value.device, value.dtype, value.shape)
        assert parameter.data_ptr() == value.data_ptr()
        (parameter * 2).sum().backward()
        assert parameter.grad.device == value.device
        parameter.grad = None


def test_gradient_of_another_device_is_refused_by_name(device: str) -> None:
    parameter = nn.Parameter(sample(3).to(device))
    if device == "cpu":
        pytest.skip("there is no other device")
    with pytest.raises(RuntimeError, match=device):
        parameter.grad = sample(3)


def test_hooks_and_views_survive_the_move(device: str) -> None:
    model = nn.Linear(3, 2)
    seen = []
    model.weight.register_hook(lambda gradient: seen.append(gradient.device.type))
    model.register_forward_hook(lambda *_: seen.append("forward"))
    model.to(device)(sample(4, 3).to(device)).sum().backward()
    assert seen == ["forward", device]


@pytest.mark.parametrize("flag", ["set_overwrite_module_params_on_conversion", "set_swap_module_params_on_conversion"])
def test_with_torchs_own_ways_of_converting(flag: str, device: str) -> None:
    change = getattr(torch.__future__, flag)
    change(True)
    try:
        model = Tied().to(device)
    finally:
        change(False)
    assert model.output.weight.device.type == model.input.weight.device.type == device
    assert model(torch.arange(3, device=device)).device.type == device


def test_parametrized_and_normalised_layers_move(device: str) -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    inner = layer.parametrizations.weight.original0
    layer.to(device)
    assert layer.parametrizations.weight.original0 is inner
    assert layer(sample(2, 3).to(device)).device.type == device
