"""What the `flagos` commands say when something is off: each text leads to the way out, without frames of our own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_flagos

MAIN = [sys.executable, "-m", "torch_fl.cli"]

FAILING_SCRIPTS = {
    "exception": ("def f():\n    raise ValueError('boom')\nf()\n", "line 3, in <module>", "ValueError: boom"),
    "syntax error": ("x = (\n", "line 1", "SyntaxError"),
    "of an import": ("import no_such_module\n", "line 1, in <module>", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("name", FAILING_SCRIPTS)
def test_trace_shows_the_traceback_of_the_script_alone(name: str, run_command, tmp_path: Path) -> None:
    source, place, error = FAILING_SCRIPTS[name]
    script = tmp_path / "script.py"
    script.write_text(source)
    done = run_command([*MAIN, "trace", str(script)])
    assert done.returncode == 1
    assert place in done.stderr
    assert error in done.stderr
    assert "runpy" not in done.stderr
    assert "torch_fl" not in done.stderr
    assert "round trips" in done.stdout, "the bill of a failing script is printed too"


@pytest.mark.parametrize("top", ["-3", "x", ""])
def test_trace_refuses_a_wrong_number_of_lines(top: str, run_command) -> None:
    done = run_command([*MAIN, "trace", f"--top={top}", "script.py"])
    assert done.returncode == 2
    assert f"expected 0 or a number of lines, not {top!r}" in done.stderr


NO_ROUTE = {
    "served by the device": ("view", "flagos routes --device view"),
    "a pattern of such": ("as_stride[d]", "flagos routes --device 'as_stride[d]'"),
    "misspelt": ("add.Tensro", "nearest: add.Tensor"),
    "with its namespace": ("aten::add.Tensor", "nearest: add.Tensor"),
    "like nothing": ("zzz", "a shell pattern finds parts of names: '*zzz*'"),
}


@pytest.mark.parametrize("name", NO_ROUTE)
def test_routes_without_a_match_says_what_to_type(name: str, run_command) -> None:
    pattern, hint = NO_ROUTE[name]
    done = run_command([*MAIN, "routes", pattern])
    assert done.returncode == 2
    assert hint in done.stderr


def test_routes_are_sorted(run_command) -> None:
    rows = json.loads(run_command([*MAIN, "routes", "--json"]).check().stdout)
    names = [row["overload"] for row in rows]
    assert names == sorted(names)
    assert len(names) > 1000


def test_doctor_shows_the_settings_also_when_the_device_is_not_loaded(run_command, tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_text("add.Tensro = host\nabs = hots\n")
    environment = {"FLAGOS_BACKEND_CONFIG": str(tmp_path / "bad.conf"), "FLAGOS_STATS": "time"}
    done = run_command([*MAIN, "doctor"], **environment)
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FLAGOS_STATS"))
    assert line.split() == ["FLAGOS_STATS", "time", "environment"]
    # Each problem begins its line, where terminals and editors make FILE:LINE:COLUMN a link.
    problems = [line for line in done.stderr.splitlines() if line.startswith(str(tmp_path))]
    assert len(problems) == 2
    report = json.loads(run_command([*MAIN, "doctor", "--json"], **environment).stdout)
    assert report["loaded"] is False
    assert any(row["name"] == "FLAGOS_STATS" and row["value"] == "time" for row in report["settings"])


def test_doctor_with_a_wrong_value_names_it(run_command) -> None:
    done = run_command([*MAIN, "doctor"], FLAGOS_HOST_DEVICES="many")
    assert done.returncode == 1
    assert "FLAGOS_HOST_DEVICES=many" in done.stderr
    assert "Traceback" not in done.stderr
