"""One call on one device: what it returned or raised, and what became of its arguments."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from parity import seed_generators, tensors_in


@dataclass
class Run:
    """What a call left behind on one device."""

    result: Any = None
    #: What it raised; nothing else is meant to be compared then.
    error: Exception | None = None
    #: Its arguments, after the call.
    arguments: Any = ()
    #: Anything else that must agree, by name.
    facts: dict[str, Any] = field(default_factory=dict)
    #: Category and text of each warning, where they were asked for.
    warnings: list[tuple[str, str]] = field(default_factory=list)


def run(call: Callable[[Any], Any], arguments: Any, seed: int, *, keep_warnings: bool = False) -> Run:
    """`call(arguments)` after seeding every generator; what it raises is kept.

    An out-of-memory error is let through: it says nothing about the call.
    """
    done = Run(arguments=arguments)
    versions = [tensor._version for tensor in tensors_in(arguments)]
    seed_generators(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            done.result = call(arguments)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  (whatever one device raises, the other must raise as well)
            done.error = error.with_traceback(None)  # whose frames would keep every tensor of the call alive
            done.error.__context__ = done.error.__cause__ = None
    if keep_warnings:
        done.warnings = [(warning.category.__name__, str(warning.message)) for warning in caught]
    done.facts["version counters of the arguments"] = [
        tensor._version - before for tensor, before in zip(tensors_in(arguments), versions, strict=True)
    ]
    return done


def refusal_difference(actual: Exception, expected: Exception, *, device: str, reference: str) -> str | None:
    """How the device's refusal differs from the reference's: another type, or a text that names another device."""
    if type(actual) is not type(expected):
        return f"{type(actual).__name__}: {actual}, the reference raises {type(expected).__name__}: {expected}"
    foreign = {"cpu", "cuda", "privateuse1", "privateuseone"} - {torch.device(device).type}
    for word in sorted(foreign):
        pattern = re.compile(rf"(?<![a-z_]){word}(?![a-z_])", re.IGNORECASE)
        if pattern.search(str(actual)) and not pattern.search(str(expected)):
            return f"the text names {word}, the reference's does not: {actual}; the reference: {expected}"
    return None
