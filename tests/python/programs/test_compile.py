"""torch.compile, torch.export and tracing: graph backends work on the device, inductor says what to do instead."""

from __future__ import annotations

import copy

import pytest
import torch
from parity import assert_equal, sample


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.relu(x @ y) + y.sum()
    return z.view(-1)[::2] * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_forward_and_backward(backend: str, device: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend)
    results = []
    for place, call in (("cpu", function), (device, compiled)):
        x = sample(4, 4).to(place).requires_grad_()
        y = sample(4, 4, seed=8).to(place).requires_grad_()
        result = call(x, y)
        result.sum().backward()
        results.append([result.detach(), x.grad, y.grad])
    assert_equal(results[1], results[0], device)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_module_and_new_shapes(backend: str, device: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    compiled = torch.compile(copy.deepcopy(model).to(device), backend=backend)
    for rows in (2, 5, 7):
        x = sample(rows, 4)
        assert_equal(compiled(x.to(device)), model(x), device)


@pytest.mark.needs_flagos
@pytest.mark.parametrize("backend", ["inductor", None])
def test_inductor_is_refused_in_one_clear_error(backend: str | None, device: str) -> None:
    torch.compiler.reset()
    options = {"backend": backend} if backend else {}
    with pytest.raises(Exception, match="flagos") as raised:
        torch.compile(function, **options)(sample(4, 4).to(device), sample(4, 4).to(device))
    text = str(raised.value)
    assert "inductor" in text
    assert "aot_eager" in text


@pytest.mark.needs_flagos
def test_inductor_still_serves_cpu_tensors(run_python) -> None:
    code = """
        import torch
        print(torch.compile(lambda x: x * 2 + 1)(torch.ones(3)).tolist())
    """
    done = run_python(code)
    assert done.returncode == 0 or "compiler" in done.stderr.lower(), done.stderr
    assert "flagos" not in done.stderr


def test_export_and_make_fx(device: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return function(x, y)

    x, y = sample(4, 4).to(device), sample(4, 4, seed=8).to(device)
    expected = function(sample(4, 4), sample(4, 4, seed=8))
    assert_equal(torch.export.export(Model(), (x, y)).module()(x, y), expected, device)
    graph = torch.fx.experimental.proxy_tensor.make_fx(function)(x, y)
    assert_equal(graph(x, y), expected, device)


def test_script_and_trace(device: str) -> None:
    x, y = sample(4, 4).to(device), sample(4, 4, seed=8).to(device)
    expected = function(sample(4, 4), sample(4, 4, seed=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        assert_equal(torch.jit.trace(function, (x, y))(x, y), expected, device)
