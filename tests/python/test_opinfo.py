"""Every operator and module that torch describes for tests, with every kind of test: the slice of `make test`.

tests/python/opinfo has the harness; `make test-full` runs all of it. The cases run in isolated workers of a process of
their own, once for all tests of this file, so a crash costs one case.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from opinfo import results as stored
from opinfo import skips
from opinfo.cases import KINDS, MODULES, OPERATORS, dtypes_of_module, dtypes_of_operator

FOLDER = Path(__file__).parent
NAMES = (*OPERATORS, *MODULES)
#: For the whole slice, on a busy machine.
SECONDS = 1200

pytestmark = [pytest.mark.needs_flagos, pytest.mark.timeout(SECONDS + 60)]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[stored.Result]]:
    """Results by operator or module, of those that are tested in this session."""
    mine = [item for item in request.session.items if item.originalname == "test_agrees_with_cpu"]
    chosen = {item.callspec.params.get("name") for item in mine if item.path == request.path} & set(NAMES)
    folder = tmp_path_factory.mktemp("opinfo")
    (folder / "names").write_text("\n".join(sorted(chosen)))
    command = [sys.executable, "-m", "opinfo", "--slice", "--only-from", str(folder / "names")]
    command += ["--workers", str(os.cpu_count() or 1), "--results", str(folder / "results.jsonl")]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in (0, 1):
        pytest.fail(f"the harness ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    _, found = stored.read(folder / "results.jsonl")
    by_name = defaultdict(list)
    for result in found:
        by_name[result.parsed.name].append(result)
    return by_name


@pytest.mark.contract("operators")
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_cpu(name: str, outcomes: dict[str, list[stored.Result]]) -> None:
    if name in OPERATORS and not OPERATORS[name].supported_dtypes("cpu"):
        pytest.skip("the table claims no dtype for the CPU")
    assert outcomes[name], "no case was run"
    failed = [result for result in outcomes[name] if result.failed]
    assert not failed, "\n\n".join(result.text() for result in failed)


def test_lines_of_the_skip_file() -> None:
    """Few, each for one operator that exists, and for cases that exist."""
    lines = skips.read("host")
    assert len(lines) <= skips.MOST_LINES
    for line in lines:
        assert line.name in NAMES
        dtypes_of = dtypes_of_operator if line.name in OPERATORS else dtypes_of_module
        kinds = [kind.partition(":")[0] for kind in line.kinds]
        assert set(kinds) <= set(KINDS), line
        possible = {dtype for kind in kinds for dtype in dtypes_of(line.name, kind, "cpu")}
        assert set(line.dtypes) <= possible, line
        assert len(line.reason) > 10, line


@pytest.mark.parametrize(
    "text",
    ["add | values | float32 | expected_failure", "add | values | float32 | ignore | why", "add | | a | not_run | b"],
)
def test_wrong_lines_of_a_skip_file_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not 'name"):
        skips.parse(text)
