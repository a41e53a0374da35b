"""Optimizers in their three forms, single tensor, foreach and fused, and whole training runs: the CPU's bits."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, difference, sample
from torch import nn

OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {},
    "Adam amsgrad": {"amsgrad": True},
    "AdamW": {"weight_decay": 0.1},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "ASGD": {},
    "Adafactor": {},
}
FUSED = ("SGD", "SGD momentum", "Adam", "Adam amsgrad", "AdamW", "Adagrad")
CASES = [
    *[(name, form) for name in OPTIMIZERS for form in ("single", "foreach", "default")],
    *[(name, "fused") for name in FUSED],
]


def parameters_after(name: str, form: str, device: str, steps: int = 4) -> list[torch.Tensor]:
    parameters = [
        nn.Parameter(sample(*size, seed=seed).to(device)) for seed, size in enumerate([(3, 4), (5,), (1,), (7, 3)])
    ]
    options = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}, "default": {}}[
        form
    ]
    optimizer = getattr(torch.optim, name.split()[0])(parameters, **OPTIMIZERS[name], **options)
    for step in range(steps):
        for number, parameter in enumerate(parameters):
            parameter.grad = sample(*parameter.shape, seed=100 * step + number).to(device)
        optimizer.step()
    states = [value for parameter in parameters for value in optimizer.state[parameter].values()]
    assert {s.device.type for s in states if torch.is_tensor(s) and s.dim()} <= {device}
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_same_bits_as_the_cpu(name: str, form: str, device: str) -> None:
    actual = parameters_after(name, form, device)
    if form != "default":
        assert_equal(actual, parameters_after(name, form, "cpu"), device)
        return
    # Each optimizer chooses its default form by device; on an accelerator that is foreach for most.
    reasons = [
        difference(actual, parameters_after(name, chosen, "cpu"), device=device) for chosen in ("foreach", "single")
    ]
    assert None in reasons, reasons


@pytest.mark.parametrize("name", ["AdamW", "SGD momentum"])
def test_forms_agree(name: str, device: str) -> None:
    single = parameters_after(name, "single", device)
    for form in ("foreach", "fused"):
        for a, b in zip(parameters_after(name, form, device), single, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.needs_flagos
def test_fused_step_runs_one_operator(device: str, extension) -> None:
    parameters_after("Adam", "fused", device, steps=1)
    rows = [row for row in extension.route_stats() if row["overload"].startswith("_fused_adam")]
    assert sum(row["calls"] for row in rows) == 1
    assert {row["backend"] for row in rows} == {"host"}


def losses(device: str, *, autocast: bool = False) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    x, target = sample(32, 1, 8, 8).to(device), (torch.arange(32) % 10).to(device)
    found = []
    torch.manual_seed(1)
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        found.append(loss.item())
    return found


def test_training_losses_are_the_same_bit_for_bit(device: str) -> None:
    expected = losses("cpu")
    assert losses(device) == expected
    assert expected[-1] < expected[0]


def test_averaged_model_and_lbfgs(device: str) -> None:
    def run(place: str) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 1).to(place)
        averaged = torch.optim.swa_utils.AveragedModel(model)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        x = sample(8, 3).to(place)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        averaged.update_parameters(model)
        return averaged.module.weight.detach()

    assert_equal(run(device), run("cpu"), device)
