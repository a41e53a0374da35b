"""Recurrent networks and cells, forward and backward: the CPU's bits, although their code looks at the device."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same_module, sample
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.contract("operators")

KINDS = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN tanh": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="tanh", **options),
    "RNN relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
OPTIONS = [
    {},
    {"batch_first": True},
    {"bidirectional": True},
    {"num_layers": 3},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.4},
    {"bias": False},
]


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()) or "plain"
)
@pytest.mark.parametrize("kind", KINDS)
def test_network(kind: str, options: dict, device: str) -> None:
    assert_same_module(lambda: KINDS[kind](5, 4, **options), sample(3, 6, 5, requires_grad=True), device=device)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_given_state_and_unbatched(kind: str, batched: bool, device: str) -> None:
    """One call at a time: where one backward reaches the same weights through two calls, their gradients are summed
    call by call, which is another order than the CPU's."""
    state, cell = sample(1, 6, 4, requires_grad=True), sample(1, 6, 4, seed=8, requires_grad=True)

    def call(module, x, state, cell):
        initial = (state, cell) if kind == "LSTM" else state
        unbatched = (state[:, 0], cell[:, 0]) if kind == "LSTM" else state[:, 0]
        whole = module(x, initial) if batched else module(x[:, 0], unbatched)
        return whole, (state * cell).sum()

    assert_same_module(
        lambda: KINDS[kind](5, 4), sample(3, 6, 5, requires_grad=True), state, cell, device=device, call=call
    )


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequence(kind: str, bidirectional: bool, device: str) -> None:
    def call(module, x):
        packed = pack_padded_sequence(x, torch.tensor([2, 5, 3]), batch_first=True, enforce_sorted=False)
        output, state = module(packed)
        return pad_packed_sequence(output, batch_first=True)[0], state

    build = KINDS[kind]
    assert_same_module(
        lambda: build(4, 3, batch_first=True, bidirectional=bidirectional),
        sample(3, 5, 4, requires_grad=True),
        device=device,
        call=call,
    )


def test_projection(device: str) -> None:
    assert_same_module(lambda: nn.LSTM(5, 6, proj_size=3), sample(3, 2, 5, requires_grad=True), device=device)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cell(kind: str, bias: bool, device: str) -> None:
    def call(module, x):
        state = module(x)
        return module(x, state)

    assert_same_module(
        lambda: getattr(nn, kind)(5, 4, bias=bias), sample(3, 5, requires_grad=True), device=device, call=call
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_other_dtypes(kind: str, dtype: torch.dtype, device: str) -> None:
    assert_same_module(
        lambda: KINDS[kind](5, 4, dtype=dtype), sample(3, 2, 5, dtype=dtype, requires_grad=True), device=device
    )


def test_state_dict_and_flattening_after_move(device: str) -> None:
    torch.manual_seed(0)
    network = nn.LSTM(3, 2)
    moved = nn.LSTM(3, 2).to(device)
    moved.load_state_dict(network.state_dict())
    moved.flatten_parameters()
    x = sample(4, 1, 3)
    assert torch.equal(moved(x.to(device))[0].cpu(), network(x)[0])


class Watching(TorchDispatchMode):
    """Sees every operator, which makes PyTorch decompose recurrent networks above the backend."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


CELLS = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, *CELLS])
def test_watched_networks_agree_within_rounding(kind: str, bias: bool, device: str) -> None:
    """Watched parts take the fused cells, which sum in another order than the CPU's path."""
    results = []
    for place in ("cpu", device):
        torch.manual_seed(4)
        module = {**KINDS, **CELLS}[kind](5, 4, bias=bias).to(place)
        x = sample(3, 5).to(place).requires_grad_() if kind in CELLS else sample(2, 3, 5).to(place).requires_grad_()
        with Watching():
            output = module(x)
            first = output[0] if isinstance(output, tuple) else output
            first.square().sum().backward()
        results.append([first, x.grad, *(parameter.grad for parameter in module.parameters())])
    for expected, found in zip(*results, strict=True):
        assert found.device.type == device
        torch.testing.assert_close(found.cpu(), expected)
