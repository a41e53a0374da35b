"""Complaint 16, lists of device names in torch's own Python: the parts that ask for cuda or xpu serve flagos too.

pytorch#124693, pytorch#196951
"""

from __future__ import annotations

import copy
import inspect
import io
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import assert_equal, assert_same, assert_same_module, sample
from torch import nn
from torch.utils import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

functional = torch.nn.functional
BASE = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Tanh())


def autocast_checkpoint(x: torch.Tensor, reentrant: bool) -> torch.Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return checkpoint.checkpoint(lambda x: functional.dropout(x @ x, 0.3).tanh(), x, use_reentrant=reentrant)


def selective_checkpoint(x: torch.Tensor) -> torch.Tensor:
    def contexts() -> Any:
        return checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    return checkpoint.checkpoint(lambda x: (x @ x).sin() @ x, x, use_reentrant=False, context_fn=contexts)


def saved_on_cpu(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.save_on_cpu():
        return (x @ x).exp()


def stacked_modules(x: torch.Tensor) -> torch.Tensor:
    torch.default_generator.manual_seed(0)
    models = [nn.Linear(4, 2).to(x.device) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    call = torch.func.vmap(lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), (0, 0, None))
    return call(parameters, buffers, x).detach()


def forward_mode(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(dual.exp() @ dual).tangent


def clipped(x: torch.Tensor, foreach: bool | None) -> Any:
    leaf = x.detach().clone().requires_grad_()
    leaf.grad = x.detach() * 3
    norm = nn.utils.clip_grad_norm_([leaf], 1.0, foreach=foreach)
    nn.utils.clip_grad_value_([leaf], 0.1, foreach=foreach)
    return norm, leaf.grad, nn.utils.get_total_norm([leaf.grad])


def product(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.sum()).sum()


#: Computed on both devices from a 4 × 4 input; the first group also backward.
WITH_GRADIENT: dict[str, Callable[[torch.Tensor], Any]] = {
    "checkpoint, autocast": lambda x: autocast_checkpoint(x, False),
    "checkpoint, reentrant": lambda x: autocast_checkpoint(x, True),
    "checkpoint, selective": selective_checkpoint,
    "checkpoint, sequential": lambda x: checkpoint.checkpoint_sequential(
        copy.deepcopy(BASE).to(x.device), 2, x, use_reentrant=False
    ),
    "checkpoint, debug": lambda x: checkpoint.checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, debug=True),
    "save_on_cpu": saved_on_cpu,
}
WITHOUT: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap of modules": stacked_modules,
    "vmap, random": lambda x: torch.vmap(lambda row: functional.dropout(row, 0.5), randomness="different")(x),
    "per-sample gradients": lambda x: torch.vmap(torch.func.grad(product))(x),
    "hessian": lambda x: torch.func.hessian(product)(x[0]),
    "jacobians": lambda x: (torch.func.jacfwd(torch.tanh)(x[0]), torch.func.jacrev(torch.tanh)(x[0])),
    "vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,)),
    "forward mode": forward_mode,
    "functionalize": lambda x: torch.func.functionalize(lambda x: x.clone().add_(1).view(-1).mul_(2))(x),
    "vectorized jacobian": lambda x: torch.autograd.functional.jacobian(torch.tanh, x[0], vectorize=True),
    "clip_grad, one by one": lambda x: clipped(x, False),
    "clip_grad, foreach": lambda x: clipped(x, True),
    "clip_grad": lambda x: clipped(x, None),
    # ldexp takes a kernel of its own for float16 on the CPU.
    "ldexp": lambda x: torch.ldexp(x.half() / 32, torch.tensor(19, device=x.device)),
}


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_with_gradients(name: str, device: str) -> None:
    assert_same(WITH_GRADIENT[name], sample(4, 4, requires_grad=True), device=device, backward=True)


@pytest.mark.parametrize("name", WITHOUT)
def test_values(name: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(WITHOUT[name], sample(4, 4), device=device)


PARAMETRIZED = {
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "spectral_norm": nn.utils.parametrizations.spectral_norm,
    "orthogonal": nn.utils.parametrizations.orthogonal,
    "pruned": lambda layer: nn.utils.prune.l1_unstructured(layer, "weight", 0.5),
}


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrized_layers(name: str, device: str) -> None:
    import torch.nn.utils.prune  # noqa: F401  (torch.nn.utils does not import it)

    assert_same_module(lambda: PARAMETRIZED[name](nn.Linear(4, 4)), sample(3, 4, requires_grad=True), device=device)


@pytest.mark.needs_flagos
@pytest.mark.filterwarnings("ignore:FLAGOS reports that you have")
@pytest.mark.parametrize(
    "options",
    [{}, {"device_type": "flagos"}, {"devices": [0], "device_type": "flagos"}, {"devices": ["flagos:0"]}],
    ids=str,
)
def test_fork_rng(options: dict, device: str) -> None:
    if "device_type" not in options and inspect.signature(torch.random.fork_rng).parameters["device_type"].default:
        pytest.skip("in this torch fork_rng means CUDA where no device type is named")
    torch.manual_seed(3)
    with torch.random.fork_rng(**options):
        inside = torch.rand(3, device=device)
    assert torch.equal(torch.rand(3, device=device), inside)


@pytest.mark.needs_flagos
def test_export_save_load_and_move(device: str) -> None:
    from torch.export.passes import move_to_device_pass

    model, x = copy.deepcopy(BASE).eval().to(device), sample(3, 4).to(device)
    program = torch.export.export(model, (x,))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    expected = copy.deepcopy(model).cpu()(sample(3, 4)).detach()
    for found in (program, torch.export.load(buffer), program.run_decompositions()):
        assert_equal(found.module()(x).detach(), expected, device)
    assert torch.equal(move_to_device_pass(program, "cpu").module()(sample(3, 4)), expected)


@pytest.mark.needs_flagos
def test_measuring_averaging_and_loading_tools(device: str) -> None:
    from torch.utils.benchmark import Timer
    from torch.utils.data import DataLoader, TensorDataset

    assert Timer("x + 1", globals={"x": torch.ones(9, device=device)}).timeit(3).mean > 0
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(device)
    averaged = torch.optim.swa_utils.AveragedModel(model, device=device, use_buffers=True)
    averaged.update_parameters(model)
    torch.optim.swa_utils.update_bn([sample(8, 4)], model, device=device)
    assert {t.device.type for t in averaged.state_dict().values()} == {device}
    (batch,) = next(iter(DataLoader(TensorDataset(sample(4, 3)), batch_size=2, pin_memory=True)))
    assert batch.is_pinned()
    torch.autograd.gradcheck(torch.tanh, sample(3, dtype=torch.float64).to(device).requires_grad_(), fast_mode=True)
    with torch.device(device):
        assert nn.Linear(2, 2).weight.device.type == device
    assert nn.LSTM(3, 3, device="meta").to_empty(device=device).weight_hh_l0.device.type == device
    assert torch.amp.GradScaler(device).is_enabled()
