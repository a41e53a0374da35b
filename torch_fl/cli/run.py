"""`flagos run`: run a program as Python would; with --as-cuda, with `cuda` standing for flagos, and a list of where."""

from __future__ import annotations

import argparse
import ast
import atexit
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from torch_fl.cli import script
from torch_fl.cli.hints import hint
from torch_fl.cli.output import Commands, new_command

if TYPE_CHECKING:
    from torch_fl.as_cuda import Uses


def add_command(commands: Commands) -> None:
    """Add `run` to the parser."""
    parser = new_command(
        commands,
        "run",
        "run a script as Python would, and end with its exit status; --as-cuda maps `cuda` to flagos",
        "flagos run --as-cuda train.py --epochs 1",
        run,
    )
    parser.add_argument(
        "--as-cuda",
        action="store_true",
        help="let `cuda` mean flagos in this process, and list on stderr what was mapped (docs/scripts.md)",
    )
    script.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program and leave with its own exit status; 2 if there is no such program."""
    refused = script.refusal(arguments, "run")
    if refused is not None:
        return refused
    if arguments.as_cuda:
        _map_cuda_until_the_end(arguments.script)
    ending = script.run_program(arguments)
    ending.show()
    advice = hint(ending.error, arguments.as_cuda)
    if advice is not None:
        print(f"[flagos] {advice}", file=sys.stderr)
    raise ending.exception()


def _map_cuda_until_the_end(path: str | None) -> None:
    """Put the mapping in force for the rest of the process: threads and exit handlers of the program come after it."""
    from torch_fl.as_cuda import as_cuda

    uses = _in_force.enter_context(as_cuda())
    atexit.register(_report, uses, path, os.getpid())


# Never closed; it lives as long as the process.
_in_force = contextlib.ExitStack()


def _report(uses: Uses, path: str | None, process: int) -> None:
    """Print the list, once, in the process that was asked for it and in no child forked from it."""
    if os.getpid() != process:
        return
    sys.stdout.flush()
    print("\n".join([*uses.report(), *(comparisons(path) if path is not None else [])]), file=sys.stderr)


def comparisons(path: str) -> list[str]:
    """Return a line for each comparison of a script with "cuda" or "cuda:…", which no mapping can reach."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return []
    found = sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(_is_cuda_text(side) for side in (node.left, *node.comparators))
    )
    return [
        f"[flagos as-cuda] note: {path}:{line} compares with 'cuda'; a device's type is 'flagos' here too"
        for line in found
    ]


def _is_cuda_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split(":")[0] == "cuda"
