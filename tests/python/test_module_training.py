"""Every module of torch.nn that torch describes for tests, trained for twenty steps of Adam: the CPU's bits."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from parity import Mover, difference, seed_generators, tensors_in
from test_modules import samples_of
from torch.testing._internal.common_modules import module_db

STEPS = 20
FORMS = ("plain", "foreach", "fused")

#: Small enough that inputs which are probabilities stay between 0 and 1.
LEARNING_RATE = 1e-4


def trainable(module: torch.nn.Module, inputs: Any) -> list[torch.Tensor]:
    """The parameters, and the inputs that require a gradient, each once."""
    found: dict[int, torch.Tensor] = {}
    for tensor in (*module.parameters(), *tensors_in(inputs)):
        if tensor.requires_grad and tensor.is_leaf:
            found[id(tensor)] = tensor
    return list(found.values())


def train(info: Any, sample: Any, place: str, form: str) -> dict[str, Any] | None:
    """Builds the module on the CPU, moves it, trains it there; None where nothing in it can be trained."""
    seed_generators(5)
    constructor = sample.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).train().to(place)
    args, kwargs = Mover(place)((sample.forward_input.args, sample.forward_input.kwargs))
    leaves = trainable(module, (args, kwargs))
    if not leaves:
        return None
    optimizer = torch.optim.Adam(leaves, lr=LEARNING_RATE, **{name: name == form for name in FORMS if name != "plain"})
    seed_generators(6)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = [tensor for tensor in tensors_in(module(*args, **kwargs)) if tensor.requires_grad]
        if not outputs:
            return None
        generator = torch.Generator().manual_seed(step)
        loss = sum(
            (output * torch.randn(output.shape, generator=generator).to(output)).abs().sum() for output in outputs
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {
        "losses": losses,
        "leaves": [leaf.detach() for leaf in leaves],
        "buffers": dict(module.named_buffers()),
        "moments": [
            (optimizer.state[leaf]["exp_avg"], optimizer.state[leaf]["exp_avg_sq"])
            for leaf in leaves
            if leaf in optimizer.state
        ],
    }


CASES = [(info, form) for info in module_db for form in FORMS]
#: `make test` trains each module once, the forms of Adam in turn; `make test-full` every sample in every form.
SLICE = [(info, FORMS[place % len(FORMS)]) for place, info in enumerate(module_db)]


def compare(info: Any, form: str, device: str, samples: list[Any]) -> None:
    found = []
    trained = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(samples):
            expected = train(info, sample, "cpu", form)
            actual = train(info, sample, device, form)
            if expected is None:
                assert actual is None
                continue
            trained += 1
            # NaNs are all equal: where all values ran away nothing would be shown. Two losses of torch's samples are
            # undefined for some inputs, never for all.
            assert any(leaf.isfinite().any() for leaf in expected["leaves"] if leaf.numel()), number
            if reason := difference(actual, expected, device=device, path=f"sample {number} ({sample.desc})"):
                found.append(reason)
    assert trained, "nothing in this module could be trained"
    assert not found, "\n".join(found)


def samples_with_input(info: Any) -> list[Any]:
    return [sample for sample in samples_of(info, training=True) if sample.forward_input is not None]


@pytest.mark.contract("operators")
@pytest.mark.parametrize(("info", "form"), SLICE, ids=lambda value: getattr(value, "name", value))
def test_one_sample(info: Any, form: str, device: str) -> None:
    compare(info, form, device, samples_with_input(info)[:1])


@pytest.mark.full
@pytest.mark.parametrize(("info", "form"), CASES, ids=lambda value: getattr(value, "name", value))
def test_every_sample(info: Any, form: str, device: str) -> None:
    compare(info, form, device, samples_with_input(info))
