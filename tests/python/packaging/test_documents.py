"""README and docs say what is there: make targets, commands, files, environment variables with their defaults."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
MAX_LINES = 600

# Not of our table: PyTorch's own, and the one that stands for a variable an overload.
OTHER_VARIABLES = {"TORCH_DEVICE_BACKEND_AUTOLOAD", "FLAGOS_OP_<overload>"}

#: The text between backquotes or in a code block, where documents show what to type.
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)\)")
TABLE_ROW = re.compile(r"^\| `([A-Z_]+(?:<overload>)?)` \|(.*)\|$", re.MULTILINE)


def code_of(document: Path) -> str:
    return "\n".join(CODE.findall(document.read_text()))


def make_targets() -> set[str]:
    """Every target that the Makefile defines by name."""
    targets = re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name for names in targets for name in names.split()}


def subcommands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each `flagos` command, by name."""
    from torch_fl.cli import build_parser

    (commands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(document: Path) -> None:
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", code_of(document)))
    if document.name == "README.md":
        assert {"run", "test"} <= named
    assert named - make_targets() == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.needs_flagos
def test_commands_exist(document: Path) -> None:
    named = set(re.findall(r"(?:`|\$ |bin/)flagos ([a-z]+)", code_of(document)))
    known = set(subcommands())
    if document.name == "README.md":
        assert named >= known, "README lists every command"
    assert named - known == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_linked_files_exist(document: Path) -> None:
    linked = [target for target in LINK.findall(document.read_text()) if not target.startswith("http")]
    assert [target for target in linked if not (document.parent / target).exists()] == []


@pytest.mark.needs_flagos
def test_every_command_has_an_example() -> None:
    commands = subcommands()
    assert len(commands) >= 5
    for name, parser in commands.items():
        assert f"example:\n  flagos {name}" in parser.format_help(), name


def test_environment_lists_every_variable(extension) -> None:
    """The tables of docs/environment.md and the one in C++ have the same names and defaults."""
    text = (ROOT / "docs" / "environment.md").read_text()
    documented = {name: [cell.strip() for cell in cells.split("|")] for name, cells in TABLE_ROW.findall(text)}
    known = {row["name"]: row["default"] for row in extension.settings() if not row["name"].startswith("FLAGOS_OP_")}
    assert set(documented) == set(known) | OTHER_VARIABLES
    for name, default in known.items():
        cell = documented[name][1]
        right = cell == f"`{default}`" if default else cell.startswith("empty")
        assert right, f"{name}: the default is {default!r}, not {cell}"


def test_no_long_file() -> None:
    """A file that grows past this is two files (CONTRIBUTING.md); tables of results are as long as what they list."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0 or not listed.stdout:
        pytest.skip("needs git and a clone, to know which files are ours")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name.endswith((".py", ".cpp", ".h", ".md", ".sh"))]
    paths = [path for path in paths if path.parent != ROOT / "bench" / "results"]
    lengths = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in paths if path.exists()}
    assert lengths
    assert {name: count for name, count in lengths.items() if count > MAX_LINES} == {}
