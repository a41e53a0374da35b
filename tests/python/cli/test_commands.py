"""The `flagos` command: help with an example, JSON for programs, exit codes 0 fine, 1 found something, 2 wrong use."""

from __future__ import annotations

import json
import sys

import pytest

pytestmark = pytest.mark.needs_flagos

COMMANDS = ("doctor", "routes", "check", "run", "trace", "demo")
MAIN = [sys.executable, "-m", "torch_fl.cli"]


@pytest.fixture
def flagos(run_command):
    """`flagos("routes", "--json", NAME="value")` runs the command in its own process."""

    def run(*arguments: str, **environment: str):
        return run_command([*MAIN, *arguments], **environment)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, flagos) -> None:
    done = flagos(command, "--help").check()
    assert f"flagos {command}" in done.stdout
    assert "xample" in done.stdout


def test_help_lists_the_commands(flagos) -> None:
    output = flagos("--help").check().stdout
    assert all(command in output for command in COMMANDS)


@pytest.mark.parametrize(
    "arguments", [("no_such_command",), ("routes", "--no-such-option"), ("check",), ("trace",)], ids=" ".join
)
def test_wrong_use(arguments: tuple[str, ...], flagos) -> None:
    done = flagos(*arguments)
    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_installed_script(run_command) -> None:
    from pathlib import Path

    script = Path(sys.executable).parent / "flagos"
    assert script.exists()
    assert "doctor" in run_command([str(script), "--help"]).check().stdout


def test_doctor(flagos) -> None:
    import torch

    text = flagos("doctor", FLAGOS_HOST_DEVICES="2").check().stdout
    for words in (torch.__version__, "host", "FLAGOS_HOST_DEVICES", "environment", "backends_host.conf"):
        assert words in text
    report = json.loads(flagos("doctor", "--json").check().stdout)
    assert report["versions"]["torch"] == torch.__version__
    assert report["loaded"] is True
    assert report["problems"] == []


def test_doctor_finds_a_broken_configuration(flagos, tmp_path) -> None:
    (tmp_path / "bad.conf").write_text("add.Tensro = host\n")
    done = flagos("doctor", FLAGOS_BACKEND_CONFIG=str(tmp_path / "bad.conf"))
    assert done.returncode == 1
    assert "bad.conf:1:1" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_routes(flagos) -> None:
    text = flagos("routes").check().stdout
    assert "add.Tensor" in text
    assert "host > none" in text
    rows = json.loads(flagos("routes", "--json", FLAGOS_OP_abs="none").check().stdout)
    by_name = {row["overload"]: row for row in rows}
    assert by_name["abs"]["route"] == "none"
    assert by_name["abs"]["origin"] == "FLAGOS_OP_abs"
    assert len(by_name) > 1500


def test_routes_by_pattern(flagos) -> None:
    rows = json.loads(flagos("routes", "--json", "*softmax*").check().stdout)
    assert {"_softmax", "_log_softmax"} <= {row["overload"] for row in rows}
    assert all("softmax" in row["overload"] for row in rows)
    done = flagos("routes", "no_such_operator_at_all")
    assert done.returncode == 2


def test_routes_of_the_device(flagos) -> None:
    assert "empty.memory_format" in flagos("routes", "--device").check().stdout


def test_check(flagos, tmp_path) -> None:
    good, bad = tmp_path / "good.conf", tmp_path / "bad.conf"
    good.write_text("default = host > none\n")
    bad.write_text("default = host > none\nadd.Tensro = host\nabs = hsot\n")
    assert flagos("check", str(good)).returncode == 0
    done = flagos("check", str(bad))
    assert done.returncode == 1
    assert f"{bad}:2:1: error:" in done.stdout + done.stderr
    assert f"{bad}:3:7: error:" in done.stdout + done.stderr
    assert "add.Tensor" in done.stdout + done.stderr
    problems = flagos("check", "--json", str(bad))
    assert problems.returncode == 1
    assert "add.Tensro" in json.dumps(json.loads(problems.stdout))
    assert flagos("check", str(tmp_path / "missing.conf")).returncode == 2


SCRIPT = """
import sys, torch
x = torch.ones(4, 4, device="flagos")
print("arguments", sys.argv[1:], __name__)
(x @ x).sum().item()
x.nonzero()
"""


def test_trace(flagos, tmp_path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = flagos("trace", str(tmp_path / "script.py"), "one", "--two", FLAGOS_OP_nonzero="none").check()
    assert "arguments ['one', '--two'] __main__" in done.stdout
    output = done.stdout + done.stderr
    assert "mm" in output
    assert "nonzero" in output
    assert "host" in output


def test_trace_for_programs(flagos, tmp_path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = flagos("trace", "--json", str(tmp_path / "script.py"), FLAGOS_OP_nonzero="none").check()
    report = json.loads(done.stdout)
    assert "arguments" in done.stderr, "what the script prints must not end up in the JSON"
    mm = next(row for row in report["rows"] if row["overload"] == "mm")
    assert report["totals"]["round_trips"] == 1
    assert report["script_failed"] is False
    assert mm["calls"] == 1
    assert mm["backend"] == "host"
    assert mm["seconds"] > 0


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "raise ValueError('from the script')"])
def test_trace_of_a_failing_script_prints_the_bill_and_fails(end: str, flagos, tmp_path) -> None:
    (tmp_path / "script.py").write_text(f"import torch\ntorch.ones(1, device='flagos') + 1\n{end}\n")
    done = flagos("trace", str(tmp_path / "script.py"))
    assert done.returncode == 1
    assert "add.Tensor" in done.stdout
    assert "ValueError" not in end or "from the script" in done.stderr


def test_trace_of_a_missing_script(flagos, tmp_path) -> None:
    assert flagos("trace", str(tmp_path / "missing.py")).returncode == 2


def test_demo_is_equal_to_the_cpu(flagos) -> None:
    pytest.importorskip("sklearn", reason="the demo's data come with scikit-learn")
    done = flagos("demo", "--json").check()
    report = json.loads(done.stdout)
    assert report["differing_losses"] == 0
    assert report["accuracy"] > 0.9
    assert report["round_trips"] == 0
