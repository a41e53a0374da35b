"""Complaint 1, a silent trip to the CPU, and no way to see what ran where: every trip is counted, logged, refusable.

pytorch#126488, Torch-FL#201, Torch-FL#14, torch-spyre#1532, torch-spyre#1769
"""

from __future__ import annotations

import pytest
import torch
from parity import sample
from torch.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.needs_flagos

#: Overloads that PyTorch has no decomposition of, with a call each: a route sends them to the CPU.
WORK = {
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique_dim": lambda x: torch.unique(x, dim=0),
    "median": lambda x: x.median(),
    "bincount": lambda x: torch.bincount((x > 0).long().flatten()),
    "convolution": lambda x: torch.nn.functional.conv1d(x[None], torch.ones(2, 4, 2, device=x.device)),
    "_ctc_loss": lambda x: torch.ops.aten._ctc_loss(x[:, None], (x[:1, :2] > 9).long() + 1, [4], [2]),
}


@pytest.mark.parametrize("name", WORK)
def test_every_trip_is_counted_with_bytes_and_logged_once(name: str, device: str, extension, capfd) -> None:
    overload = name
    x = sample(4, 6).to(device)
    extension.set_route(overload, "none")
    extension.set_log("fallback")
    extension.reset_route_stats()
    capfd.readouterr()
    for _ in range(3):
        WORK[name](x)
    trips = [row for row in torch.flagos.route_stats() if row["overload"] == overload and row["backend"] == "none"]
    assert sum(row["calls"] for row in trips) == 3
    assert sum(row["bytes_to_host"] for row in trips) >= 3 * x.nbytes
    assert sum(row["bytes_from_host"] for row in trips) > 0
    lines = [line for line in capfd.readouterr().err.splitlines() if f"aten::{overload}" in line]
    assert len(lines) == 3, lines


def test_a_program_without_such_a_route_makes_no_trip(device: str, extension) -> None:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    extension.reset_route_stats()
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(2, 5, 16, device=device)).square().mean().backward()
        optimizer.step()
    backends = {row["backend"] for row in torch.flagos.route_stats() if row["reason"] != "decomposition"}
    assert backends == {"host", "device"}
    assert not any(row["bytes_to_host"] or row["bytes_from_host"] for row in torch.flagos.route_stats())


def test_counters_and_profiler_tell_the_same_calls(device: str, extension) -> None:
    x = sample(8, 8).to(device).requires_grad_()

    def work() -> None:
        torch.relu(x @ x).sort(dim=1)[0].cumsum(0).log_softmax(1).sum().backward()

    work()
    extension.reset_route_stats()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        work()
    ranges = [event.name for event in recorded.events() if event.name.startswith("flagos::")]
    ranges = [name for name in ranges if name.endswith("-> host")]
    totals: dict[str, int] = {}
    for row in torch.flagos.route_stats():
        if row["backend"] == "host":
            key = f"flagos::{row['overload']} -> host"
            totals[key] = totals.get(key, 0) + row["calls"]
    assert {name: ranges.count(name) for name in set(ranges)} == totals


def test_refusing_trips_stops_the_first_one_and_names_it(run_python) -> None:
    code = """
        import torch
        x = torch.tensor([0.0, 1.0], device="flagos")
        print((x + x).tolist())
        x.nonzero()
    """
    done = run_python(code, FLAGOS_FALLBACK="error", FLAGOS_OP_nonzero="none")
    assert done.stdout.strip() == "[0.0, 2.0]"
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "nonzero" in last
    assert "FLAGOS_FALLBACK" in last
