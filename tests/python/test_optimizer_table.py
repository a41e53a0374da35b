"""Every optimizer and configuration of torch's own table, twenty steps in every form: bits and state of the CPU."""

from __future__ import annotations

import copy
import io
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import difference, sample, tensors_in
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 20
#: After this step the optimizer is saved, and a new one loads it.
ROUND_TRIP_AFTER = 9

#: A matrix, a transposed matrix, a vector, one element, a scalar; Muon takes matrices only.
SHAPES = ((3, 4), (5, 2), (7,), (1,), ())

FORMS = {
    "plain": {},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "differentiable": {"differentiable": True},
}

#: State of no dimension that an optimizer keeps beside the parameter in every form; the rest is there only if
#: capturable or fused, and else on the CPU, where reading it stops no queue of work (torch/optim/*.py, `_init_group`).
ALWAYS_ON_THE_DEVICE = {("ASGD", "eta"), ("ASGD", "mu")}


@dataclass(frozen=True)
class Case:
    """One optimizer with one configuration in one form, on parameters of one dtype."""

    info: Any
    number: int  # of the configuration
    kwargs: dict[str, Any]
    description: str
    form: str
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        return f"{self.info.name}-{self.number} {self.description or 'default'}-{self.form}-{str(self.dtype)[6:]}"

    def build(self, parameters: list[Any]) -> torch.optim.Optimizer:
        # A learning rate may be a tensor, which schedulers write to.
        return self.info.optim_cls(parameters, **copy.deepcopy(self.kwargs), **self.flags())

    def flags(self) -> dict[str, bool]:
        off = dict.fromkeys(self.info.supported_impls, False)
        return {**off, **FORMS[self.form]}


def configurations(info: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """What torch lists for any device: some entries are there for GPUs only, such as `capturable`."""
    seen = set()
    for device in ("cpu", "cuda", "mps"):
        for entry in info.optim_inputs_func(device):
            if repr(entry) not in seen:
                seen.add(repr(entry))
                yield entry.kwargs, entry.desc


def forms_of(info: Any) -> list[str]:
    return ["plain", *info.supported_impls]


DENSE = [info for info in optim_db if not info.only_supports_sparse_grads]
GROUPED = [info for info in DENSE if info.supports_multiple_devices and info.supports_param_groups]


def cases() -> Iterator[Any]:
    for info in DENSE:
        listed = list(configurations(info))
        for number, (kwargs, description) in enumerate(listed):
            for form in forms_of(info):
                if (
                    form == "foreach"
                    and "lr" in kwargs
                    and torch.is_tensor(kwargs["lr"])
                    and "capturable" not in kwargs
                ):
                    continue  # torch refuses this combination
                dtypes = [torch.float32, torch.float64]
                if number == 0:
                    dtypes += [torch.bfloat16]
                # torch refuses to fuse complex parameters, on every device.
                if info.supports_complex and form in ("plain", "foreach"):
                    dtypes += [torch.complex64]
                for dtype in dtypes:
                    case = Case(info, number, kwargs, description, form, dtype)
                    # The first and the last configuration of each form, in float32, run always.
                    always = dtype == torch.float32 and number in (0, len(listed) - 1)
                    yield pytest.param(case, marks=() if always else pytest.mark.full, id=str(case))


def parameters_on(place: str, case: Case) -> list[torch.Tensor]:
    shapes = [shape for shape in SHAPES if len(shape) == 2 or case.info.name != "Muon"]
    made = []
    for number, shape in enumerate(shapes):
        values = sample(*shape, seed=number, dtype=case.dtype).to(place)
        # LBFGS views each parameter as a vector.
        transposed = number == 1 and not case.info.step_requires_closure
        made.append(torch.nn.Parameter(values.t() if transposed else values))
    return made


def gradient_of(parameter: torch.Tensor, number: int, step: int) -> torch.Tensor:
    """Dense in the parameter's own layout; sometimes zero, small or large."""
    values = sample(*parameter.shape, seed=1000 * number + step, dtype=parameter.dtype)
    values = values * (0.0, 1.0, 1e-3, 50.0)[(step + number) % 4]
    return torch.empty_like(parameter).copy_(values)


def closure_for(optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], step: int) -> Any:
    targets = [sample(*p.shape, seed=step + number, dtype=p.dtype).to(p.device) for number, p in enumerate(parameters)]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(
            (number + 1) * ((p - target).abs().square().sum() + (p * target).abs().square().log1p().sum())
            for number, (p, target) in enumerate(zip(parameters, targets, strict=True))
        )
        loss.backward()
        return loss

    return closure


def saved_and_loaded(optimizer: torch.optim.Optimizer, case: Case, parameters: list[Any]) -> torch.optim.Optimizer:
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    again = case.build(parameters)
    again.load_state_dict(torch.load(buffer))
    return again


def scheduler_for(case: Case, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Every second configuration gets one of the schedules that torch lists for the optimizer, in turn."""
    if case.number % 2 == 0:
        return []
    choices = case.info.scheduler_inputs
    return [make(optimizer) for make in choices[case.number // 2 % len(choices)]]


def train(place: str, case: Case) -> tuple[dict[str, Any], list[tuple[str, torch.Tensor, torch.Tensor]]]:
    """Runs the steps; returns everything that must agree, and (key, state tensor, parameter) for their devices."""
    parameters = parameters_on(place, case)
    leaves: list[torch.Tensor] = []
    if case.form == "differentiable":
        leaves = parameters
        parameters = [p.clone() for p in leaves]
    optimizer = case.build(parameters)
    schedulers = scheduler_for(case, optimizer)
    losses = []
    for step in range(STEPS):
        if case.info.step_requires_closure:
            losses.append(optimizer.step(closure_for(optimizer, parameters, step)).detach().cpu())
        else:
            for number, parameter in enumerate(parameters):
                gradient = gradient_of(parameter.detach(), number, step)
                if leaves:
                    leaves.append(gradient.requires_grad_())
                parameter.grad = gradient
            optimizer.step()
        for scheduler in schedulers:
            scheduler.step(*[1.0 + step % 3] if isinstance(scheduler, ReduceLROnPlateau) else [])
        if step == ROUND_TRIP_AFTER and not leaves and not schedulers:
            optimizer = saved_and_loaded(optimizer, case, parameters)
    states = [
        (key, value, parameter)
        for parameter in parameters
        for key, value in optimizer.state[parameter].items()
        if torch.is_tensor(value)
    ]
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    result = {
        "parameters": [p.detach().cpu() for p in parameters],
        "strides": [p.stride() for p in parameters],
        "state": [(key, value.detach().cpu()) for key, value, _ in states],
        "other state": repr(
            [sorted((k, v) for k, v in optimizer.state[p].items() if isinstance(v, (int, float))) for p in parameters]
        ),
        "groups": [
            {k: v.detach().cpu() if torch.is_tensor(v) else repr(v) for k, v in group.items()} for group in groups
        ],
        "losses": losses,
    }
    if leaves:
        total = sum(p.abs().square().sum() for p in parameters)
        try:
            gradients = torch.autograd.grad(total, leaves, allow_unused=True)
            result["gradients"] = [None if g is None else g.cpu() for g in gradients]
        except RuntimeError as refusal:
            # Some of torch's steps write to a state that the graph of an earlier step needs.
            assert "modified by an inplace operation" in str(refusal), refusal  # noqa: PT017
            result["gradients"] = "not differentiable over several steps"
    return result, states


@pytest.fixture
def capturable_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the CPU run the form that torch offers on accelerators only, so that it can say what is right."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
            allowed = [*module._get_capturable_supported_devices(), "cpu"]
            monkeypatch.setattr(
                module, "_get_capturable_supported_devices", lambda *_, allowed=allowed, **__: list(allowed)
            )


@pytest.mark.parametrize("case", list(cases()))
@pytest.mark.usefixtures("capturable_on_the_cpu")
def test_twenty_steps(case: Case, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = train("cpu", case)
        actual, states = train(device, case)
    if reason := difference(actual, expected, device="cpu", path="after the steps"):
        pytest.fail(reason)
    # NaNs are all equal: values that ran away would prove nothing.
    assert all(parameter.isfinite().all() for parameter in expected["parameters"])
    on_device = case.form == "fused" or case.kwargs.get("capturable", False)
    for key, value, parameter in states:
        assert parameter.device.type == device
        if value.dim() or on_device or (case.info.name, key) in ALWAYS_ON_THE_DEVICE:
            assert value.device == parameter.device, f"state {key} is on {value.device}"
        else:
            assert value.device.type in ("cpu", device), f"state {key} is on {value.device}"


def test_the_table_is_whole() -> None:
    """Every optimizer that torch exports is in its table, and every configuration of the table is a case."""
    exported = {
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    assert exported == {info.name for info in optim_db}
    listed = {(case.values[0].info.name, case.values[0].number, case.values[0].form) for case in cases()}
    for info in DENSE:
        count = len(info.optim_inputs_func("cpu"))
        assert {(info.name, number, "plain") for number in range(count)} <= listed
        assert {(info.name, 0, form) for form in forms_of(info)} <= listed


@pytest.mark.needs_flagos
@pytest.mark.parametrize("info", GROUPED, ids=lambda info: info.name)
def test_parameters_of_several_devices(info: Any, device: str, second_device: str) -> None:
    """Groups with options of their own, whose parameters are on two devices and the CPU."""
    size = (3, 2)

    def run(places: tuple[str, ...], form: str) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(sample(*size, seed=i).to(place)) for i, place in enumerate(places)]
        groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.05}]
        optimizer = Case(info, 0, {}, "", form).build(groups)
        for step in range(STEPS):
            for number, parameter in enumerate(parameters):
                parameter.grad = gradient_of(parameter.detach(), number, step)
            optimizer.step()
        return [p.detach().cpu() for p in parameters]

    for form in forms_of(info):
        if form == "differentiable":
            continue
        expected = run(("cpu",) * 4, form)
        actual = run((device, second_device, "cpu", device), form)
        assert not (reason := difference(actual, expected, device="cpu", path=form)), reason


def moved(parameters: Any, place: str) -> Any:
    """An optimizer's first argument on another device; one tensor that occurs twice stays one."""
    known: dict[int, torch.Tensor] = {}

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            gradient = value.grad
            if id(value) not in known:
                known[id(value)] = torch.nn.Parameter(value.detach().to(place))
                if gradient is not None:
                    known[id(value)].grad = gradient.to(place)
            return known[id(value)]
        if isinstance(value, dict):
            return {key: move(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(move(item) for item in value)
        return value

    return move(parameters)


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.name)
def test_wrong_use_raises_what_the_cpu_raises(info: Any, device: str) -> None:
    listed = info.optim_error_inputs_func(device="cpu", dtype=torch.float32)
    assert listed
    for entry in listed:
        wrong = entry.optimizer_error_input
        if any(t.layout != torch.strided for t in tensors_in(wrong.params)):
            continue  # the device has no sparse tensors yet; see below

        def use(place: str, entry: Any = entry, wrong: Any = wrong) -> None:
            given = moved(wrong.params, place)
            optimizer = info.optim_cls(given, **copy.deepcopy(wrong.kwargs))
            if entry.error_on == OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for place in ("cpu", device):
                with pytest.raises(entry.error_type, match=entry.error_regex):
                    use(place)


@pytest.mark.needs_flagos
@pytest.mark.parametrize("info", [i for i in optim_db if i.supports_sparse or i.only_supports_sparse_grads],
                         ids=lambda info: info.name)  # fmt: skip
def test_sparse_gradients_are_refused_clearly(info: Any, device: str) -> None:
    """The device has no sparse tensors yet; the error says so where the gradient is made, and names the layout."""
    table = torch.nn.Embedding(5, 3, sparse=True).to(device)
    optimizer = info.optim_cls(table.parameters(), lr=0.1)
    before = table.weight.detach().clone()
    with pytest.raises(NotImplementedError, match=r"(?i)sparse"):
        table(torch.tensor([1, 3], device=device)).sum().backward()
    optimizer.step()
    assert torch.equal(table.weight.detach(), before)
