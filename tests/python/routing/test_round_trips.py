"""Trips to the CPU: what arguments share stays shared, what is written comes back, strides are the CPU's."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.needs_flagos


@pytest.fixture
def to_none(extension):
    """`to_none("flip")` routes an overload to `none` for the length of a test."""
    yield lambda overload: extension.set_route(overload, "none")
    extension.clear_route_overrides()


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_come_back(training: bool, to_none, device: str) -> None:
    """Their schema does not say that they are written. Backward must not take the update for a foreign one."""
    to_none("native_batch_norm")

    def compute(x):
        module = torch.nn.BatchNorm1d(3).to(x.device).train(training)
        module.running_mean.fill_(0.5)
        module(x).square().sum().backward()
        return module.running_mean, module.running_var, module.weight.grad

    assert_same(compute, sample(4, 3), device=device)


@pytest.fixture
def library():
    """A library fragment for one test's operators."""
    with torch.library._scoped_library("torch_fl_tests", "FRAGMENT") as fragment:
        yield fragment


SHARED = {
    "an expanded tensor": ("flip", lambda x: x[:1].expand(3, 4).flip(0)),
    "a tensor twice in a list": (
        "_amp_foreach_non_finite_check_and_unscale_",
        lambda x: torch._amp_foreach_non_finite_check_and_unscale_(
            [x, x], torch.zeros(1, device=x.device), torch.full((1,), 0.5, device=x.device)
        ),
    ),
    "an input as output": ("exp.out", lambda x: torch.exp(x, out=x)),
    "a view of the input as output": ("exp.out", lambda x: torch.exp(x[0], out=x[1])),
    "a column": ("exp.out", lambda x: torch.exp(x[:, 0], out=x[:, 1])),
    "a conjugate view": ("sgn.out", lambda x: torch.sgn(torch.complex(x, x).conj(), out=torch.complex(x, x).conj())),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_stays_shared(name: str, to_none, device: str) -> None:
    overload, compute = SHARED[name]
    to_none(overload)
    assert_same(compute, sample(3, 4), device=device)


def test_overlap_is_an_error_as_on_the_cpu(to_none, device: str) -> None:
    to_none("cat.out")
    for place in ("cpu", device):
        x = torch.ones(4, device=place)
        with pytest.raises(RuntimeError, match=r"overlap|memory"):
            torch.cat([x[:2], x[1:3]], out=x)


def test_resized_output_has_the_strides_of_the_cpu(to_none, device: str) -> None:
    to_none("exp.out")
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    expected = torch.exp(x, out=torch.empty(0))
    found = torch.exp(x.to(device), out=torch.empty(0, device=device))
    assert found.stride() == expected.stride()
    assert found.device.type == device


def test_version_counters_move_as_on_the_cpu(to_none, device: str) -> None:
    to_none("exp_")
    x = torch.ones(3, device=device)
    before = x._version
    x.exp_()
    assert x._version == before + 1


def test_training_with_every_route_none(run_python, tmp_path) -> None:
    path = tmp_path / "none.conf"
    path.write_text("default = none\n")
    code = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(),
                                    torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(18, 3))
        x = torch.randn(4, 1, 8, 8)
        target = torch.tensor([0, 1, 2, 0])
        results = []
        for place in ("cpu", "flagos"):
            import copy
            moved = copy.deepcopy(model).to(place)
            loss = torch.nn.functional.cross_entropy(moved(x.to(place)), target.to(place))
            loss.backward()
            gradients = [p.grad.cpu() for p in moved.parameters()]
            results.append([loss.detach().cpu(), moved[1].running_mean.cpu(), *gradients])
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)
        print("same")
    """
    done = run_python(code, FLAGOS_BACKEND_CONFIG=str(path)).check()
    assert done.stdout.strip() == "same"


def test_results_over_one_buffer_share_a_storage(device: str, library) -> None:
    library.define("parts(Tensor x, int n) -> Tensor[]")
    library.impl("parts", lambda x, n: list((x * 1).repeat(n, 1).unbind(0)), "CPU")
    x = torch.ones(1000, device=device)
    before = torch.flagos.memory_allocated()
    parts = torch.ops.torch_fl_tests.parts(x, 10)
    assert torch.flagos.memory_allocated() - before == 10 * x.nbytes
    assert len({part.untyped_storage()._cdata for part in parts}) == 1


def test_an_operator_may_go_and_come_back_with_another_schema(device: str, extension) -> None:
    def add_in_place(x, n):
        x.add_(n)

    x = torch.ones(3, device=device)
    for schema, kernel, call, expected in (
        ("again(Tensor x) -> Tensor", lambda x: x + 1, lambda op: op(x), 2.0),
        (
            "again(Tensor(a!) x, int n) -> ()",
            add_in_place,
            lambda op: op(x, 4),
            None,
        ),
        ("again(Tensor x, Tensor y) -> Tensor", lambda x, y: x * y, lambda op: op(x, x), 25.0),
    ):
        with torch.library._scoped_library("torch_fl_tests", "FRAGMENT") as fragment:
            fragment.define(schema)
            fragment.impl("again", kernel, "CPU")
            result = call(torch.ops.torch_fl_tests.again)
        assert result is None or result.tolist() == [expected] * 3
        extension.set_route("flip", "none")  # every route is resolved anew, without the operator that went
        extension.clear_route_overrides()
    assert x.tolist() == [5.0] * 3


def test_composites_that_look_at_the_device(device: str) -> None:
    assert_same(lambda x: torch.complex(x, x).conj_physical_(), sample(3, 4), device=device)
    assert_same(
        lambda x: torch.mode(
            x, 1, out=(torch.empty(0, device=x.device), torch.empty(0, dtype=torch.long, device=x.device))
        ),
        sample(3, 4),
        device=device,
    )
    attention = torch.nn.functional.scaled_dot_product_attention
    assert_same(lambda q: torch.func.vmap(attention)(q, q, q), sample(2, 2, 3, 4), device=device)
