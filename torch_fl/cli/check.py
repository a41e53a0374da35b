"""`flagos check`: test a routing file, all problems at once as FILE:LINE:COLUMN, without changing any route."""

from __future__ import annotations

import argparse
import os
import sys

import torch_fl
from torch_fl import unavailable
from torch_fl.cli.output import FINE, FOUND_SOMETHING, WRONG_USE, Commands, new_command, print_json


def add_command(commands: Commands) -> None:
    """Add `check` to the parser."""
    parser = new_command(
        commands,
        "check",
        "test a routing file and print every problem as FILE:LINE:COLUMN",
        "flagos check --strict my.conf",
        run,
        works_without_device=True,
    )
    parser.add_argument("file", metavar="FILE", help="the routing file")
    parser.add_argument("--strict", action="store_true", help="let warnings and routes to none past a kernel fail too")
    parser.add_argument("--json", action="store_true", help="print the problems as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the problems; 1 if there is an error (with --strict: or a warning), 2 if the file cannot be read."""
    try:
        with open(arguments.file, encoding="utf-8") as file:
            file.read(1)
    except (OSError, UnicodeDecodeError) as error:
        print(f"flagos check: cannot read {arguments.file}: {error}", file=sys.stderr)
        return WRONG_USE
    try:
        from torch_fl import _C
    except ImportError as error:
        print(f"flagos check: {unavailable.describe(torch_fl.load_error or error)}", file=sys.stderr)
        return WRONG_USE

    problems = _C.check_config(os.path.abspath(arguments.file), arguments.strict)
    if arguments.json:
        print_json(problems)
    else:
        for problem in problems:
            place = f"{problem['file']}:{problem['line']}:{problem['column']}"
            print(f"{place}: {problem['severity']}: {problem['message']}")
    failing = {"error", "warning"} if arguments.strict else {"error"}
    if any(problem["severity"] in failing for problem in problems):
        return FOUND_SOMETHING
    if not arguments.json:
        print(f"{arguments.file}: no {'problem' if arguments.strict else 'error'} found")
    return FINE
