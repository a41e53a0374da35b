"""A slice of the stress run in `make test`, all of it in `make test-full`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_flagos

#: A slower build of the extension, such as one with sanitizers, sets fewer.
SLICE = int(os.environ.get("TORCH_FL_STRESS_ITERATIONS", "400"))


def run_stress(run_command, *arguments: str) -> dict:
    program = Path(__file__).with_name("stress.py")
    done = run_command([sys.executable, str(program), "--json", *arguments])
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def check(report: dict, iterations: int) -> None:
    assert report["problems"] == []
    assert (report["unequal"], report["unequal_to_cpu"], report["bytes_left"]) == (0, 0, 0)
    assert report["iterations"] == iterations
    assert report["routes_swapped"] > 0
    assert report["statistics_read"] > 0
    assert report["compared_with_cpu"] == len(range(0, iterations, 10))


def test_a_slice(run_command) -> None:
    check(run_stress(run_command, "--iterations", str(SLICE), "--seed", "3"), SLICE)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_iterations(monkeypatch, run_command) -> None:
    monkeypatch.setattr(sys.modules["conftest"], "PROGRAM_TIMEOUT_SECONDS", 1700)
    check(run_stress(run_command, "--iterations", "10000", "--seed", "4"), 10000)


def test_wrong_use(run_command) -> None:
    program = Path(__file__).with_name("stress.py")
    done = run_command([sys.executable, str(program), "--threads", "0"])
    assert done.returncode == 2
    assert "at least 1" in done.stderr
