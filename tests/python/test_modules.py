"""Every module of torch.nn that torch describes for tests, forward and backward: equal to the CPU bit for bit."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from parity import Mover, difference, seed_generators, tensors_in
from torch.testing._internal.common_modules import module_db

#: Modules that are tested in float64, with the cause; all others in float32.
IN_FLOAT64 = {
    "nn.FractionalMaxPool2d": "torch's module inputs carry float64 random samples, refused with a float32 input",
    "nn.FractionalMaxPool3d": "torch's module inputs carry float64 random samples, refused with a float32 input",
}

#: Differences that are known and accepted, each with its cause. A listed module that agrees fails the test.
LISTED_DIFFERENCES: dict[str, str] = {}


def run_module(info: Any, sample: Any, place: str, training: bool) -> dict[str, Any]:
    """Builds the module on the CPU from a fixed seed, moves it to `place`, runs forward and backward there."""
    seed_generators(5)
    constructor = sample.constructor_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)
    module = module.to(torch.device(place))
    mover = Mover(place)
    args, kwargs = mover((sample.forward_input.args, sample.forward_input.kwargs))
    seed_generators(6)
    output = module(*args, **kwargs)
    roots = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if roots:
        generator = torch.Generator().manual_seed(8)
        gradients = [
            torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root.dtype).to(root.device)
            for root in roots
        ]
        torch.autograd.backward(roots, gradients)
    # Moved parameters are new leaves or the same ones; either way their gradients must agree by name.
    return {
        "output": output,
        "state": {name: tensor.detach() for name, tensor in module.state_dict().items() if torch.is_tensor(tensor)},
        "parameter gradients": {name: p.grad for name, p in module.named_parameters()},
        "input gradients": [t.grad for t in tensors_in((args, kwargs)) if t.requires_grad],
    }


def samples_of(info: Any, training: bool) -> list[Any]:
    seed_generators(3)
    dtype = torch.float64 if info.name in IN_FLOAT64 else torch.float32
    return list(info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training))


@pytest.mark.contract("operators")
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_agrees_with_cpu(info: Any, device: str) -> None:
    found = []
    modes = (True, False) if info.train_and_eval_differ else (True,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in modes:
            for number, sample in enumerate(samples_of(info, training)):
                if sample.forward_input is None:
                    continue
                where = f"{'train' if training else 'eval'} sample {number} ({sample.desc})"
                expected = run_module(info, sample, "cpu", training)
                try:
                    actual = run_module(info, sample, device, training)
                except Exception as error:  # noqa: BLE001  (reported with the sample that provoked it)
                    found.append(f"{where}: {type(error).__name__}: {error}")
                    continue
                if reason := difference(actual, expected, device=device, path="module"):
                    found.append(f"{where}: {reason}")
    cause = LISTED_DIFFERENCES.get(info.name) if device != "cpu" else None
    if cause and not found:
        pytest.fail(f"agrees now; remove it from LISTED_DIFFERENCES ({cause})")
    if cause:
        pytest.xfail(f"{cause}: {found[0]}")
    assert not found, "\n".join(found)
