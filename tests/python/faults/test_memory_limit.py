"""The memory limit reached at any allocation of a training step or an operator: numbers in the error, nothing left
behind, nothing half done, and the same bits as on the CPU when it is tried again."""

from __future__ import annotations

import copy
import functools
import gc
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from exhaustion import AtEachAllocation, StopBefore, allocated, allocations_made, check_back_at, error_of, numbers_of
from parity import assert_equal, difference, map_tensors, sample
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.needs_flagos


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    gc.collect()  # what an earlier test has left is not missed later
    gc.freeze()  # the tests collect often, and nothing that is there now is of interest
    yield
    gc.unfreeze()
    from torch_fl import _C

    _C.fail_allocation(0, 0)
    torch.flagos.set_memory_limit(0)


# --- training steps


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(16, 4),
    )  # fmt: skip


class Words(nn.Module):
    """An embedding, an LSTM and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words, _ = self.recurrent(self.table(x.abs().mul(5).long().clamp(max=10)))
        words = F.scaled_dot_product_attention(words[:, None], words[:, None], words[:, None])[:, 0]
        return self.last(words.mean(1))


class Training:
    """A model, its optimizer and one batch; a step from the same start gives the same bits everywhere."""

    def __init__(self, model: Callable[[], nn.Module], device: str, autocast: bool, form: dict[str, bool]) -> None:
        torch.default_generator.manual_seed(3)
        self.model = model().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=0.1, **form)
        self.batch, self.target = sample(5, 6, seed=1), torch.tensor([1, 0, 3, 2, 2])
        self.device, self.autocast = device, autocast
        self.phase = "before"
        self.seed(4)

    def seed(self, seed: int) -> None:
        (torch.flagos if self.device == "flagos" else torch).manual_seed(seed)

    def step(self) -> None:
        self.phase = "forward"
        self.optimizer.zero_grad()
        x, target = self.batch.to(self.device), self.target.to(self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            result = self.model(x)
        loss = F.cross_entropy(result.float(), target)
        self.phase = "backward"
        loss.backward()
        self.phase = "optimizer"
        self.optimizer.step()
        self.phase = "after"

    def state(self) -> dict[str, Any]:
        """Everything that a step changes, copied to the CPU."""
        generator = torch.flagos.get_rng_state() if self.device == "flagos" else torch.get_rng_state()
        state = {
            "parameters": list(self.model.parameters()),
            "gradients": [parameter.grad for parameter in self.model.parameters()],
            "buffers": list(self.model.buffers()),
            "optimizer": [self.optimizer.state.get(parameter, {}) for parameter in self.model.parameters()],
            "generator": generator,
        }
        return map_tensors(lambda tensor: tensor.detach().cpu().clone(), state)

    def snapshot(self) -> tuple[Any, Any, Any]:
        """On the CPU: it takes no memory of the device."""
        generator = torch.flagos.get_rng_state() if self.device == "flagos" else torch.get_rng_state()
        state = (dict(self.model.state_dict()), self.optimizer.state_dict(), generator)
        return map_tensors(lambda tensor: tensor.detach().cpu().clone(), state)

    def restore(self, snapshot: tuple[Any, Any, Any]) -> None:
        model, optimizer, generator = map_tensors(torch.Tensor.clone, snapshot)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        (torch.flagos if self.device == "flagos" else torch).set_rng_state(generator)
        self.optimizer.zero_grad()


@dataclass(frozen=True)
class Step:
    """A training step to be stopped at each of its allocations."""

    model: Callable[[], nn.Module] = perceptron
    form: str = "foreach"
    autocast: bool = False
    #: Overloads that are sent to the CPU and back.
    trips: tuple[str, ...] = ()

    def training(self, device: str) -> Training:
        forms = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False}}
        return Training(self.model, device, self.autocast, forms[self.form])


STEPS = {
    "plain": Step(form="plain"),
    "foreach": Step(),
    "fused": Step(form="fused"),
    "convolutional": Step(convolutional, form="fused"),
    "words": Step(Words, form="fused"),
    "autocast": Step(linear, form="fused", autocast=True),
    "trips": Step(
        form="fused", trips=("gelu.out", "gelu_backward.grad_input", "addmm.out", "native_layer_norm_backward")
    ),
}  # fmt: skip


def same(actual: Any, expected: Any) -> bool:
    return difference(actual, expected, device="cpu") is None


def states_of_whole_operators(step: Step) -> list[dict[str, Any]]:
    """The CPU's state had its second step been stopped before its first operator, before its second one, …, never."""
    training = step.training("cpu")
    training.step()
    start = training.snapshot()
    with StopBefore() as counting:
        training.step()
    states = []
    for number in range(len(counting.begun) + 1):
        training.restore(start)
        try:
            with StopBefore(number):
                training.step()
        except StopBefore.Stopped:
            pass
        states.append(training.state())
    return states


@pytest.mark.parametrize("name", STEPS)
def test_each_allocation_of_a_training_step(name: str, device: str, extension) -> None:
    """The step is the second one, whose optimizer has its state.

    Where an optimizer is stopped between two of its operators its state is what it is on the CPU and on CUDA: what the
    operators before had done stays done, and a program that goes on must load a state from before. Nothing between two
    such states is left: an operator has run as a whole or not at all.
    """
    step = STEPS[name]
    states = states_of_whole_operators(step)
    finished = states[-1]
    gradients = finished["gradients"]
    states = [{name: part for name, part in state.items() if name != "gradients"} for state in states]
    for overload in step.trips:
        extension.set_route(overload, "none")
    training = step.training(device)
    training.step()
    start = training.snapshot()
    training.restore(start)
    base, made = allocated(), allocations_made()
    training.step()
    made = allocations_made() - made
    assert same(training.state(), finished), difference(training.state(), finished, device="cpu")
    phases: dict[str, int] = {}
    reached = 0
    for number in (attempts := AtEachAllocation()):
        training.restore(start)
        check_back_at(base, f"before allocation {number}")
        if not attempts.run(training.step):
            break
        phases[training.phase] = phases.get(training.phase, 0) + 1
        state = training.state()
        # The order in which leaves get their gradients is nowhere promised; each has none or all of its own.
        for gradient, whole in zip(state.pop("gradients"), gradients, strict=True):
            assert gradient is None or same(gradient, whole), f"allocation {number}: part of a gradient"
        reached = next((n for n in range(reached, len(states)) if same(state, states[n])), -1)
        assert reached >= 0, f"allocation {number} ({training.phase}): a state that no whole number of operators leaves"
        if training.phase in ("forward", "backward") and step.model is not convolutional:
            # Nothing has been changed that the step does not compute anew, so it is simply repeated.
            training.step()
            assert same(training.state(), finished), f"allocation {number} ({training.phase}), repeated"
        training.restore(start)
        check_back_at(base, f"allocation {number} ({training.phase})")
        training.step()
        assert same(training.state(), finished), f"allocation {number} ({training.phase}), after restoring"
    assert attempts.count == made
    assert {"forward", "backward"} <= phases.keys()
    assert ("optimizer" in phases) == (step.form != "fused")


def test_optimizer_states_that_are_not_made_yet(device: str) -> None:
    """The first step of an optimizer makes its state; a refused one leaves none or a whole one, and can be repeated."""
    step = STEPS["foreach"]
    reference = step.training("cpu")
    reference.step()
    expected = reference.state()
    for _ in (attempts := AtEachAllocation()):
        training = step.training(device)
        if attempts.run(training.step) and training.phase != "optimizer":
            assert training.optimizer.state_dict()["state"] == {}
            training.step()
            assert_equal(training.state(), expected, "cpu")
    assert attempts.count > 20


def test_limits_between_nothing_and_enough(device: str) -> None:
    """Real limits, each one byte short of a level that the step reaches; with the highest level it passes."""
    training = Step().training(device)
    training.step()
    start = training.snapshot()

    class Levels(StopBefore):
        def __torch_dispatch__(self, *call: Any) -> Any:
            result = super().__torch_dispatch__(*call)
            levels.add(allocated())
            return result

    levels: set[int] = set()
    training.restore(start)
    base = allocated()
    with Levels():
        training.step()
    expected = training.state()
    training.restore(start)
    torch.flagos.reset_peak_memory_stats()
    training.step()
    peak = torch.flagos.max_memory_allocated()
    limits = sorted({level - 1 for level in levels if level > base} | {peak - 1})
    assert len(limits) > 10
    for limit in limits:
        training.restore(start)
        check_back_at(base, f"limit {limit}")
        torch.flagos.set_memory_limit(limit)
        message = error_of(training.step)
        assert message is not None, limit
        assert numbers_of(message)["limit"] == limit
        assert allocated() <= limit
        torch.flagos.set_memory_limit(peak)
        training.restore(start)
        training.step()
        assert_equal(training.state(), expected, "cpu")
        torch.flagos.set_memory_limit(0)


# --- operators and what scripts do with tensors


def _gradient(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)[0]


def _accumulated(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    x.grad = torch.ones_like(x)
    x.exp().sum().backward()
    return x.grad


def _loaded(x: torch.Tensor) -> torch.Tensor:
    loader = DataLoader(TensorDataset(torch.arange(24.0).view(6, 4)), batch_size=2, pin_memory=True)
    return torch.stack([batch.to(x.device, non_blocking=True).sum(0) for (batch,) in loader])


def _saved_and_loaded(x: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


def _moved_module(x: torch.Tensor) -> list[torch.Tensor]:
    torch.default_generator.manual_seed(2)
    return list(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(x.device).state_dict().values())


def _trip(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.flip(0), *x.max(dim=1)]


#: Each computes from a 3×4 tensor on the device; `x` must not change.
OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "arithmetic": lambda x: (x * 2 + 1) @ x.t(),
    "clone": lambda x: [x.clone(), x.t().contiguous(), copy.deepcopy(x)],
    "to another type": lambda x: [x.double(), x.half().float(), x.to(torch.int32)],
    "from and to the CPU": lambda x: [x.cpu().to(x.device), torch.tensor([1, 2], device=x.device)],
    "copy with conversion": lambda x: torch.zeros(4, 3, dtype=torch.int64, device=x.device).copy_(x.t()),
    "two results": lambda x: [*x.sort(dim=1), *x.topk(2), *x.max(dim=0)],
    "three results": lambda x: [*torch.unique(x.round(), return_inverse=True, return_counts=True)],
    "many results": lambda x: list(torch._foreach_mul([x, x + 1, x + 2], 2.0)),
    "foreach in place": lambda x: torch._foreach_add_([x.clone(), x.clone()], [x, x]),
    "sizes from data": lambda x: [x.nonzero(), x[x > 0], x.unique()],
    "indexing": lambda x: [x[torch.tensor([2, 0])], x.clone().index_put_((torch.tensor([1]),), x[0])],
    "joining": lambda x: [torch.cat([x, x]), torch.stack([x, x]), x.repeat(2, 3)],
    "resize_": lambda x: x.clone().resize_(40)[:12].clone(),
    "storage resized": lambda x: x.clone().untyped_storage().resize_(480).nbytes(),
    "set_": lambda x: torch.empty(0, device=x.device).set_(x.clone().untyped_storage(), 0, (2, 2), (2, 1)),
    "out grown": lambda x: [torch.add(x, 1, out=x.new_empty(0)), torch.mm(x, x.t(), out=x.new_empty(0))],
    "in place": lambda x: x.clone().add_(1).mul_(x).masked_fill_(x > 0, 0.5).t_(),
    "factories": lambda x: [x.new_ones(3), torch.arange(9, device=x.device), torch.eye(3, device=x.device)],
    "drawn": lambda x: [torch.rand(4, generator=torch.Generator(x.device).manual_seed(1), device=x.device)],
    "gradient of a gradient": _gradient,
    "gradient added": _accumulated,
    "checkpoint": lambda x: torch.autograd.grad(
        checkpoint(lambda y: (y.sin() * y).tanh(), x.requires_grad_(), use_reentrant=False).sum(), x
    ),
    "autocast": lambda x: torch.autocast(x.device.type, torch.bfloat16)(lambda: x @ x.t())(),
    "loader that pins": _loaded,
    "saved and loaded": _saved_and_loaded,
    "module moved": _moved_module,
    "linear algebra": lambda x: torch.linalg.qr(x),
    "fold": lambda x: F.pad(F.unfold(x[None, None], 2), (1, 1), mode="reflect"),
}  # fmt: skip
TRIPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "two results": _trip,
    "out grown": lambda x: torch.flip(x, [0]) + torch.mul(x, x, out=torch.empty(0, device=x.device)),
    "in place": lambda x: x.clone().fill_(3).masked_fill_(x > 0, 1),
    "batch norm": lambda x: F.batch_norm(x, x.new_zeros(4), x.new_ones(4), training=True),
    "drawn": lambda x: x.clone().normal_(generator=torch.Generator(x.device).manual_seed(1)),
    "indexing": lambda x: x.index_select(0, torch.tensor([1, 1], device=x.device)),
}
ROUND_TRIPS = (
    "flip",
    "max",
    "mul.out",
    "fill_.Scalar",
    "masked_fill_.Scalar",
    "native_batch_norm",
    "normal_",
    "index_select",
)


def stop_at_each_allocation(work: Callable[[torch.Tensor], Any], device: str) -> None:
    original = sample(3, 4)
    expected = work(original.clone())
    x = original.to(device)
    work(x)  # what is made once and kept is made
    base, made = allocated(), allocations_made()
    work(x)
    made = allocations_made() - made
    for number in (attempts := AtEachAllocation()):
        reached = attempts.run(lambda: work(x))
        check_back_at(base, f"allocation {number}")
        assert torch.equal(x.detach().cpu(), original)
        if reached:
            result = work(x)
            assert_equal(map_tensors(torch.Tensor.detach, result), map_tensors(torch.Tensor.detach, expected), device)
            del result
            check_back_at(base, f"allocation {number}, tried again")
    assert attempts.count == made > 0


@pytest.mark.parametrize("name", OPERATORS)
def test_each_allocation_of(name: str, device: str) -> None:
    stop_at_each_allocation(OPERATORS[name], device)


@pytest.mark.parametrize("name", TRIPS)
def test_each_allocation_of_round_trips(name: str, device: str, extension) -> None:
    for overload in ROUND_TRIPS:
        extension.set_route(overload, "none")
    stop_at_each_allocation(TRIPS[name], device)
    assert any(row["reason"] in ("round trip", "host_fill") for row in extension.route_stats())


# --- what a refused operator may have changed


def test_refused_in_place_growth_changes_nothing(device: str) -> None:
    x = sample(4).to(device)
    view = x[1:]
    for grow in (lambda: x.resize_(100), lambda: x.untyped_storage().resize_(400), lambda: view.resize_(100)):
        torch.flagos.set_memory_limit(allocated() + 200)
        assert error_of(grow) is not None
        torch.flagos.set_memory_limit(0)
        assert (x.shape, x.untyped_storage().nbytes(), view.shape) == ((4,), 16, (3,))
        assert_equal(x, sample(4), device)


def test_tensor_grown_by_a_kernel_is_charged_and_usable(device: str, extension) -> None:
    """`out=`: the kernel has grown and written the tensor before the device hears of it (docs/memory.md)."""
    x, out = sample(50).to(device), torch.empty(0, device=device)
    base = allocated()
    extension.fail_allocation(0, 1)
    message = error_of(functools.partial(torch.add, x, 1, out=out))
    assert message is not None
    assert numbers_of(message)["grown"] == 200
    assert allocated() == base + 200
    assert_equal(out, sample(50) + 1, device)
    del out
    check_back_at(base, "after the tensor is freed")


def test_error_in_another_device_names_it(second_device: str) -> None:
    torch.flagos.set_memory_limit(torch.flagos.memory_allocated(1) + 100, 1)
    try:
        message = error_of(lambda: torch.ones(26, device=second_device), index=1)
        assert message is not None
        assert numbers_of(message)["asked"] == 104
        torch.ones(26, device="flagos:0")
    finally:
        torch.flagos.set_memory_limit(0, 1)


def test_counting_can_be_taken_back(device: str, extension) -> None:
    base = allocated()
    extension.fail_allocation(0, 3)
    kept = [torch.ones(2, device=device)]
    assert extension.fail_allocation(0, 0) == 2
    kept += [torch.ones(2, device=device) for _ in range(5)]
    extension.fail_allocation(0, 2)
    kept.append(torch.ones(2, device=device))
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2, device=device)
    kept.append(torch.ones(2, device=device))
    assert extension.fail_allocation(0, 0) == 0
    # A limit that is set meanwhile holds.
    extension.fail_allocation(0, 100)
    torch.flagos.set_memory_limit(allocated())
    assert torch.flagos.mem_get_info() == (0, allocated())
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2, device=device)
    assert extension.fail_allocation(0, 0) == 99
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2, device=device)
    del kept
    check_back_at(base, "at the end")
