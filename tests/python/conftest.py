"""Sets up every Python test: which device is tested, programs run in their own process, counts by contract group."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

# Settings are read once, when torch loads the device: two virtual devices must be asked for before the import below.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")
# The tests state their own expectations about threads; two are enough and keep a shared machine responsive.
os.environ.setdefault("OMP_NUM_THREADS", "2")

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: `FLAGOS_TEST_DEVICE=cpu` runs the tests on plain CPU tensors, which shows that the tests themselves are right.
DEVICE = os.environ.pop("FLAGOS_TEST_DEVICE", "flagos")

#: What a device owes its users, in the order in which the counts are printed.
CONTRACT_GROUPS = {
    "operators": "operators",
    "random": "random numbers",
    "factories": "factories and device index",
    "amp": "automatic mixed precision",
    "math_bits": "lazy conjugate and negative",
}

#: Every child process is stopped after this time; a hang is then one failed test. A build with sanitizers takes longer.
PROGRAM_TIMEOUT_SECONDS = int(os.environ.get("TORCH_FL_PROGRAM_TIMEOUT", "180"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "contract(group): one case of the device contract; counted by group")
    config.addinivalue_line("markers", "needs_flagos: means nothing on a plain CPU tensor")
    if DEVICE == "flagos":
        import torch_fl  # noqa: F401  (loads the device, or raises what is wrong with it)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DEVICE == "flagos":
        return
    skip = pytest.mark.skip(reason=f"needs the flagos device, testing {DEVICE}")
    for item in items:
        if item.get_closest_marker("needs_flagos"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    for marker in item.iter_markers("contract"):
        (group,) = marker.args
        if group not in CONTRACT_GROUPS:
            raise pytest.UsageError(f"{item.nodeid}: unknown contract group {group!r}")
        report.user_properties.append(("contract", group))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = {group: Counter() for group in CONTRACT_GROUPS}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, []):
            for group in {value for key, value in getattr(report, "user_properties", []) if key == "contract"}:
                counts[group][outcome] += 1
    if not any(counts.values()):
        return
    terminalreporter.section(f"contract groups on {DEVICE}")
    for group, title in CONTRACT_GROUPS.items():
        listed = ", ".join(f"{number} {outcome}" for outcome, number in counts[group].items()) or "none run"
        terminalreporter.write_line(f"{title:32} {listed}")


@dataclass(frozen=True)
class Finished:
    """What a program left behind: its exit status and both of its outputs."""

    returncode: int
    stdout: str
    stderr: str

    def check(self) -> Finished:
        """Fails the test, with both outputs, unless the program ended with status 0."""
        if self.returncode != 0:
            pytest.fail(f"exit status {self.returncode}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}")
        return self


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without any setting of ours or of torch's device loading, plus `changes`.

    Where torch is built for CUDA, `import torch` loads flagos only if the accelerator is named, so it is.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLAGOS_") and name != "TORCH_DEVICE_BACKEND_AUTOLOAD"
    }
    if torch.backends.cuda.is_built():
        environment["FLAGOS_ACCELERATOR"] = "host"
    return {**environment, **changes}


@pytest.fixture
def device() -> str:
    """Name of the device under test."""
    return DEVICE


@pytest.fixture
def second_device() -> str:
    """A device of the same kind with another index."""
    if DEVICE == "cpu":
        pytest.skip("the CPU has one device only")
    if torch.flagos.device_count() < 2:
        pytest.fail("the tests need FLAGOS_HOST_DEVICES=2 or more")
    return f"{DEVICE}:1"


@pytest.fixture
def run_command(tmp_path: Path) -> Callable[..., Finished]:
    """`run_command([program, argument, …], NAME="value")` runs it in an empty folder with a clean environment."""

    def run(command: list[str], **environment: str) -> Finished:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def run_python(tmp_path: Path, run_command: Callable[..., Finished]) -> Callable[..., Finished]:
    """`run_python(code, NAME="value")` runs `code` as a script, so that programs which spawn processes work too."""

    def run(code: str, **environment: str) -> Finished:
        script = tmp_path / f"program_{len(list(tmp_path.glob('program_*.py')))}.py"
        script.write_text(textwrap.dedent(code))
        return run_command([sys.executable, str(script)], **environment)

    return run


@pytest.fixture
def extension():
    """The C++ extension, with routes, log and counters put back when the test ends."""
    if DEVICE != "flagos":
        pytest.skip("needs the flagos device")
    from torch_fl import _C

    loaded = _C.config_files()
    _C.reset_route_stats()
    yield _C
    _C.set_log("")
    _C.set_timing(False)
    _C.clear_route_overrides()
    if _C.config_files() != loaded:
        _C.load_config(loaded[0])
    _C.reset_route_stats()
