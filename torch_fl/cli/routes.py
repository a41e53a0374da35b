"""`flagos routes`: which backends may run which overload, in which order, and which line or variable says so."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch_fl.cli.output import FINE, WRONG_USE, Commands, new_command, print_json, table


def add_command(commands: Commands) -> None:
    """Add `routes` to the parser."""
    parser = new_command(
        commands,
        "routes",
        "list the routes in force: overload, backends in order, and the line or variable that decided it",
        "flagos routes --backend host 'add*'",
        run,
    )
    parser.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="an overload, an operator, or a shell pattern such as '*softmax*'"
    )
    parser.add_argument("--backend", metavar="B", help="only routes that name this backend")
    parser.add_argument(
        "--device", action="store_true", help="list what the device itself serves, which no file can route"
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen routes; 2 for an unknown backend or a pattern without a match, with the nearest names."""
    from torch_fl import _C, flagos

    if arguments.device:
        if arguments.backend is not None:
            print("flagos routes: --device and --backend exclude each other", file=sys.stderr)
            return WRONG_USE
        served = [row for row in _C.device_overloads() if _matches(row["overload"], arguments.pattern)]
        if not served:
            return _no_match(arguments.pattern, (row["overload"] for row in _C.device_overloads()))
        if arguments.json:
            print_json(served)
        else:
            print(table(["overload", "kind"], [[row["overload"], row["kind"]] for row in served]))
        return FINE

    backends = [backend["name"] for backend in _C.backends()]
    if arguments.backend is not None and arguments.backend not in backends:
        print(f"flagos routes: no backend {arguments.backend!r}; there are: {', '.join(backends)}", file=sys.stderr)
        return WRONG_USE
    every = flagos.routes()
    matching = [row for row in every if _matches(row["overload"], arguments.pattern)]
    if not matching:
        if any(_matches(row["overload"], arguments.pattern) for row in _C.device_overloads()):
            print(
                f"flagos routes: {arguments.pattern!r} is served by the device itself and has no route; "
                f"`flagos routes --device {shlex.quote(arguments.pattern)}` lists it",
                file=sys.stderr,
            )
            return WRONG_USE
        return _no_match(arguments.pattern, (row["overload"] for row in every))
    if arguments.backend is not None:
        matching = [row for row in matching if arguments.backend in _named_backends(row["route"])]
    if arguments.json:
        print_json(matching)
        return FINE
    rows = [[row["overload"], row["route"], row["origin"]] for row in matching]
    print(table(["overload", "route", "from"], rows))
    print(f"\n{len(matching)} of {len(every)} routable overloads")
    return FINE


def _matches(overload: str, pattern: str | None) -> bool:
    """A pattern without an overload name stands for all overloads of the operator: `add` finds `add.Tensor`."""
    return pattern is None or fnmatchcase(overload, pattern) or fnmatchcase(overload.split(".")[0], pattern)


def _named_backends(route: str) -> list[str]:
    """Return the backends of a route; a candidate `backend(condition, …)` may have a `>` among its conditions."""
    names: list[str] = []
    depth = 0
    candidate = ""
    for character in route + ">":
        depth += (character == "(") - (character == ")")
        if character == ">" and depth == 0:
            names.append(candidate.split("(")[0].strip())
            candidate = ""
        else:
            candidate += character
    return names


def _no_match(pattern: str | None, overloads: Iterable[str]) -> int:
    if pattern is None:
        print("flagos routes: there are no such overloads", file=sys.stderr)
        return WRONG_USE
    nearest = difflib.get_close_matches(pattern, list(overloads), n=3)
    hint = f"; nearest: {', '.join(nearest)}" if nearest else f"; a shell pattern finds parts of names: '*{pattern}*'"
    print(f"flagos routes: no overload matches {pattern!r}{hint}", file=sys.stderr)
    return WRONG_USE
