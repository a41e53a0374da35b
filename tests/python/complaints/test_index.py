"""The table of complaints is whole: eighteen rows, and every file and test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = [line for line in (HERE / "README.md").read_text().splitlines() if re.match(r"\| \d", line)]


def test_eighteen_rows_with_a_file_each() -> None:
    assert [int(line.split("|")[1]) for line in TABLE] == list(range(1, 19))
    named = {re.search(r"`(test_\w+\.py)`", line).group(1) for line in TABLE}
    assert named == {path.name for path in HERE.glob("test_*.py")} - {"test_index.py"}
    for name in named:
        text = (HERE / name).read_text()
        assert re.match(r'"""Complaint \d+, ', text), name
        assert re.search(r"[\w-]+#\d+", text.split('"""')[1]), name


def test_every_test_named_elsewhere_exists() -> None:
    for line in TABLE:
        for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", line):
            assert f"def {test}(" in (HERE.parent / file).read_text(), (file, test)
