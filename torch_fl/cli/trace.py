"""`flagos trace`: run a script in this process, then print the bill: what ran where, how often, and how long."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch_fl.cli import script
from torch_fl.cli.output import FINE, FOUND_SOMETHING, Commands, bytes_text, new_command, print_json, table

if TYPE_CHECKING:
    from torch_fl._C import RouteStat


def add_command(commands: Commands) -> None:
    """Add `trace` to the parser."""
    parser = new_command(
        commands,
        "trace",
        "run a script and print its bill: calls, time and bytes of round trips for each overload and backend",
        "flagos trace --top 20 train.py --epochs 1",
        run,
    )
    parser.add_argument("--json", action="store_true", help="print the bill as JSON; the script prints to stderr then")
    parser.add_argument("--top", type=_count, default=30, metavar="N", help="lines to print, 0 for all (default 30)")
    script.add_arguments(parser)


def _count(text: str) -> int:
    """Return a number of lines; what argparse reports for anything else names the value."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected 0 or a number of lines, not {text!r}")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the script and print the bill, also when the script fails; 1 if it does, 2 if there is no such script.

    The exit code says whether something was found; the script's own status is printed. `flagos run` passes it on.
    """
    from torch_fl import _C

    refused = script.refusal(arguments, "trace")
    if refused is not None:
        return refused
    _C.set_timing(True)
    _C.reset_route_stats()
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        ending = script.run_program(arguments)
        ending.show()
    stats = _C.route_stats()
    _C.set_timing(False)
    if isinstance(ending.error, KeyboardInterrupt):
        print("flagos trace: interrupted; the bill so far:", file=sys.stderr)
    elif ending.failed:
        print(f"flagos trace: the script ended with exit status {ending.status}", file=sys.stderr)

    rows = bill(stats)
    if arguments.json:
        status = {"script_failed": ending.failed, "script_status": ending.status}
        print_json({**status, "rows": rows, "totals": totals(rows)})
    else:
        _print(rows, arguments.top)
    return FOUND_SOMETHING if ending.failed else FINE


def bill(stats: Iterable[RouteStat]) -> list[dict[str, Any]]:
    """Add the counters up over dtypes: one row for each (overload, backend, reason), the longest time first.

    Columns: overload, backend, reason, calls, seconds (None where no time was kept), bytes_to_host, bytes_from_host,
    and trip_to_cpu, whether these calls ran on the CPU with copies.
    """
    from torch_fl.flagos.routing import is_trip_to_cpu

    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for stat in stats:
        key = (stat["overload"], stat["backend"], stat["reason"])
        row = rows.setdefault(
            key,
            {
                "overload": stat["overload"],
                "backend": stat["backend"],
                "reason": stat["reason"],
                "calls": 0,
                "seconds": None,
                "bytes_to_host": 0,
                "bytes_from_host": 0,
                "trip_to_cpu": is_trip_to_cpu(stat),
            },
        )
        row["calls"] += stat["calls"]
        row["bytes_to_host"] += stat["bytes_to_host"]
        row["bytes_from_host"] += stat["bytes_from_host"]
        if stat["seconds"] is not None:
            row["seconds"] = (row["seconds"] or 0.0) + stat["seconds"]
    return sorted(rows.values(), key=lambda row: (-(row["seconds"] or 0.0), -row["calls"], row["overload"]))


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of a bill: calls, seconds, calls by backend, and the trips to the CPU with their bytes."""
    by_backend: dict[str, int] = {}
    for row in rows:
        by_backend[row["backend"]] = by_backend.get(row["backend"], 0) + row["calls"]
    return {
        "calls": sum(by_backend.values()),
        "seconds": sum(row["seconds"] or 0.0 for row in rows),
        "calls_by_backend": dict(sorted(by_backend.items(), key=lambda item: -item[1])),
        "round_trips": sum(row["calls"] for row in rows if row["trip_to_cpu"]),
        "bytes_to_host": sum(row["bytes_to_host"] for row in rows),
        "bytes_from_host": sum(row["bytes_from_host"] for row in rows),
    }


def _print(rows: list[dict[str, Any]], top: int) -> None:
    sums = totals(rows)
    shown = rows[:top] if top > 0 else rows
    all_seconds = sums["seconds"] or 1.0
    cells = [
        [
            row["overload"],
            row["backend"],
            row["reason"],
            f"{row['calls']:,}",
            "-" if row["seconds"] is None else f"{row['seconds'] * 1e3:,.2f}",
            "-" if row["seconds"] is None else f"{100.0 * row['seconds'] / all_seconds:.1f}",
            bytes_text(row["bytes_to_host"]),
            bytes_text(row["bytes_from_host"]),
        ]
        for row in shown
    ]
    header = ["overload", "backend", "reason", "calls", "time ms", "time %", "to host", "from host"]
    print("\n" + table(header, cells, right=[3, 4, 5, 6, 7]))
    if len(shown) < len(rows):
        print(f"… and {len(rows) - len(shown)} more lines (--top 0 prints all)")
    backends = ", ".join(f"{name} {calls:,}" for name, calls in sums["calls_by_backend"].items()) or "none"
    print(f"\ncalls        {sums['calls']:,} ({backends})")
    print(f"time         {sums['seconds'] * 1e3:,.2f} ms in operators, host time of each call, nested calls included")
    trip_bytes = f"{bytes_text(sums['bytes_to_host'])} to the host, {bytes_text(sums['bytes_from_host'])} back"
    print(f"round trips  {sums['round_trips']:,} ({trip_bytes})")
