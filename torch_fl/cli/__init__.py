"""The command `flagos`: one subcommand a file, this one parses the arguments and runs the chosen one.

Exit codes of every subcommand: 0 fine, 1 found something (a problem, a difference, a failing script), 2 wrong use.
`run` alone ends with the exit status of the script it ran.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import torch_fl
from torch_fl import unavailable
from torch_fl.cli import check, demo, doctor, routes, run, trace
from torch_fl.cli.output import FINE, WRONG_USE

_EXAMPLES = """\
examples:
  flagos doctor                      what is installed, loaded and configured here
  flagos demo                        train a small network on flagos and compare it with the CPU
  flagos run --as-cuda train.py      run a script that names cuda, on flagos
  flagos trace script.py             run a script, then print where its operators ran and how long
  flagos routes 'add*'               which backends run the overloads add*, and which line says so
  flagos check my.conf               test a routing file

exit codes: 0 fine, 1 found something, 2 wrong use; of `run`: the script's own"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand sets `run`, a function from the parsed arguments to an exit code."""
    parser = argparse.ArgumentParser(
        prog="flagos",
        description="Tools of torch_fl, the PyTorch device 'flagos'.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torch_fl {torch_fl.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (doctor, demo, run, trace, routes, check):
        module.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; argparse itself exits with 2 on wrong use."""
    chosen = build_parser().parse_args(arguments)
    if torch_fl.load_error is not None and not chosen.works_without_device:
        cause = unavailable.describe(torch_fl.load_error)
        print(f"flagos: the device is not loaded (see `flagos doctor`):\n  {cause}", file=sys.stderr)
        return WRONG_USE
    try:
        exit_code: int = chosen.run(chosen)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` say, has seen enough. Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    return exit_code
