"""What the subcommands print alike: exit codes, tables, numbers with units, and the setup of a subcommand's parser."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

FINE = 0
FOUND_SOMETHING = 1
WRONG_USE = 2

_BYTES_IN_UNIT = 1024


def new_command(
    commands: Commands,
    name: str,
    help_text: str,
    example: str,
    run: Callable[[argparse.Namespace], int],
    works_without_device: bool = False,
) -> argparse.ArgumentParser:
    """Add a subcommand whose --help ends in an example, and return its parser to add arguments to.

    A subcommand that works without the device is run even when the device could not be loaded.
    """
    parser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, works_without_device=works_without_device)
    return parser


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    print(json.dumps(value, indent=2))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return rows under a header in aligned columns; the columns numbered in `right` are flushed right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *(line(row) for row in rows)])


def bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit of 1024 that leaves at least 1: `1.5 MiB`."""
    if count < _BYTES_IN_UNIT:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= _BYTES_IN_UNIT
        if value < _BYTES_IN_UNIT:
            return f"{value:.1f} {unit}"
    return f"{value / _BYTES_IN_UNIT:.1f} TiB"
