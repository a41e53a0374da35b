"""torch.profiler on the device: operator names, CPU time, shapes, and the route in a range."""

from __future__ import annotations

import json

import pytest
import torch
from parity import sample
from torch.profiler import ProfilerActivity, profile, record_function


def test_operator_names_and_time(device: str) -> None:
    x = sample(64, 64).to(device).requires_grad_()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded, record_function("my part"):
        torch.relu(x @ x).sum().backward()
    events = {event.key: event for event in recorded.key_averages()}
    for name in ("aten::matmul", "aten::mm", "aten::relu", "aten::sum", "my part"):
        assert name in events, sorted(events)
        assert events[name].cpu_time_total > 0
    shapes = {event.key: event for event in recorded.key_averages(group_by_input_shape=True)}
    assert shapes["aten::mm"].input_shapes[:2] == [[64, 64], [64, 64]]


@pytest.mark.needs_flagos
def test_route_is_in_a_range(device: str, extension) -> None:
    extension.set_route("nonzero", "none")
    x = sample(8).to(device)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        torch.mm(x[None], x[:, None])
        x.nonzero()
    keys = {event.key for event in recorded.key_averages()}
    assert any("mm" in key and "host" in key for key in keys), sorted(keys)
    assert any("nonzero" in key and "none" in key for key in keys), sorted(keys)


def test_chrome_trace(device: str, tmp_path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        sample(4).to(device).add(1)
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    names = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert "aten::add" in names


@pytest.mark.needs_flagos
def test_every_activity_may_be_asked_for(device: str) -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as recorded:
        sample(4).to(device).add(1)
    assert "aten::add" in recorded.key_averages().table()
