"""Which backend runs which operator overload, and what that has cost so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl import _C

if TYPE_CHECKING:
    from torch_fl._C import Backend, Route, RouteStat


def route_stats() -> list[RouteStat]:
    """Return the calls so far, one row for each (overload, backend, dtypes, reason).

    `bytes_to_host` and `bytes_from_host` count the copies of round trips to the CPU; `seconds` is None unless time is
    kept (FLAGOS_STATS=time, `flagos trace`).
    """
    return _C.route_stats()


def reset_route_stats() -> None:
    """Set all counters of `route_stats` to 0."""
    _C.reset_route_stats()


def routes() -> list[Route]:
    """Return the route in force of every routable overload, by name, and the file line or variable it comes from."""
    return sorted(_C.routes(), key=lambda route: route["overload"])


def backends() -> list[Backend]:
    """Return the kernel backends that a route can name, whether each is available, and why not."""
    return _C.backends()


def is_trip_to_cpu(stat: RouteStat) -> bool:
    """True for calls that the CPU computed on copies: backend `none`, unless the overload was only decomposed."""
    return stat["backend"] == "none" and stat["reason"] != "decomposition"
