"""Proof of what ran: on the host every operator runs as a kernel on the same memory, and none makes a round trip."""

from __future__ import annotations

import pytest
import torch
from parity import sample

pytestmark = [pytest.mark.contract("operators"), pytest.mark.needs_flagos]

UNARY = [
    "neg",
    "sin",
    "cos",
    "tan",
    "tanh",
    "exp",
    "expm1",
    "erf",
    "sqrt",
    "rsqrt",
    "log",
    "log1p",
    "log2",
    "reciprocal",
    "sigmoid",
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "relu",
]

#: call, overload that must have run
CASES = [
    *[(getattr(torch, name), name) for name in UNARY],
    (lambda x: torch.bitwise_not(x > 0), "bitwise_not"),
    (lambda x: x + x, "add.Tensor"),
    (lambda x: x - x, "sub.Tensor"),
    (lambda x: x * x, "mul.Tensor"),
    (lambda x: x / 2, "div.Tensor"),
    (lambda x: x.add_(1), "add_.Tensor"),
    (lambda x: torch.maximum(x, x), "maximum"),
    (lambda x: x > 0, "gt.Scalar"),
    (lambda x: x == x, "eq.Tensor"),
    (torch.abs, "abs.out"),  # torch composes abs and sum of these
    (lambda x: x.sum(), "sum.dim_IntList"),
    (lambda x: x.mean(1), "mean.dim"),
    (lambda x: x.amax(0), "amax"),
    (lambda x: x.argmax(), "argmax"),
    (lambda x: x.tril(), "tril"),
    (lambda x: x.triu(), "triu"),
    (lambda x: x.flip(0), "flip"),
    (lambda x: torch.cat([x, x]), "cat"),
    (lambda x: torch.mm(x, x), "mm"),
    (lambda x: torch.addmm(x, x, x), "addmm"),
    (lambda x: torch.softmax(x, 1), "_softmax"),
    (lambda x: torch.where(x > 0, x, x), "where.self"),
    (lambda x: x.zero_(), "zero_"),
    (lambda x: x.fill_(2), "fill_.Scalar"),
    (lambda x: torch.arange(4, device=x.device), "arange.start_out"),
    (lambda x: x.uniform_(), "uniform_"),
    (lambda x: torch.nn.functional.silu(x), "silu"),
    (lambda x: torch.nn.functional.gelu(x), "gelu"),
    (lambda x: x[torch.tensor([0])], "index.Tensor"),
    (lambda x: x.topk(2), "topk"),
]


@pytest.mark.parametrize(("call", "overload"), CASES, ids=[overload for _, overload in CASES])
def test_runs_on_the_host_without_a_trip(call, overload: str, device: str, extension) -> None:
    x = sample(4, 4).to(device)
    extension.reset_route_stats()
    call(x)
    rows = extension.route_stats()
    ran = {(row["overload"], row["backend"]) for row in rows}
    assert (overload, "host") in ran, ran
    assert not [row for row in rows if row["backend"] == "none" and row["reason"] == "round trip"], rows
    assert not [row for row in rows if row["bytes_to_host"] or row["bytes_from_host"]], rows


def test_training_step_makes_no_trip(device: str, extension) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 10),
    ).to(device)
    optimizer = torch.optim.Adam(network.parameters())
    x, target = sample(8, 1, 8, 8).to(device), torch.arange(8).to(device)
    extension.reset_route_stats()
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), target).backward()
        optimizer.step()
    rows = extension.route_stats()
    assert sum(row["calls"] for row in rows if row["backend"] == "host") > 50
    assert not [row for row in rows if row["bytes_to_host"] or row["bytes_from_host"]], rows


def test_log_names_the_backend(run_python) -> None:
    code = "import torch; torch.abs(torch.randn(3, device='flagos'))"
    for environment, line in (
        ({}, "abs.out -> host"),
        ({"FLAGOS_OP_abs": "host"}, "abs -> host"),
        ({"FLAGOS_OP_abs": "none"}, "abs -> none"),
    ):
        done = run_python(code, FLAGOS_LOG="dispatch", **environment).check()
        assert f"[flagos dispatch] {line}" in done.stderr.splitlines(), done.stderr
        assert "[flagos cpu_fallback]" not in done.stderr
