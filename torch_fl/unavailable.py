"""What stands at `torch.flagos` while the device is not loaded: it answers "not available" and tells why."""

from __future__ import annotations

import sys
import types

import torch

_MODULE_NAME = "torch.flagos"


class UnavailableDevice(types.ModuleType):
    """A stand-in for the device module; every question that has an answer without a device gets it.

    Any other attribute raises AttributeError with the reason (and not RuntimeError, so that `hasattr` stays usable).
    """

    def __init__(self, reason: str, error: Exception | None) -> None:
        super().__init__(_MODULE_NAME, f"The flagos device is not loaded: {reason}")
        self.reason = reason
        self.load_error = error

    def is_available(self) -> bool:
        """Return False: no flagos device is loaded."""
        return False

    def is_initialized(self) -> bool:
        """Return False: no flagos device is loaded."""
        return False

    def device_count(self) -> int:
        """Return 0: no flagos device is loaded."""
        return 0

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"torch.flagos.{name}: the flagos device is not loaded: {self.reason}")


def describe(error: Exception) -> str:
    """Return an error and its chain of causes as one text, leaving out causes whose message an earlier one repeats.

    A message of several lines, such as the problems of a routing file, keeps each of them at the start of a line.
    """
    message = str(error)
    separator = "\n" if "\n" in message else " "
    text = f"{type(error).__name__}:{separator}{message}"
    cause = error.__cause__
    while cause is not None:
        if str(cause) not in text:
            text += f"\n  caused by {type(cause).__name__}: {cause}"
        cause = cause.__cause__
    return text


def install(error: Exception) -> None:
    """Put a stand-in that tells this error at `torch.flagos`."""
    _place(UnavailableDevice(describe(error), error))


def install_for_reason(reason: str) -> None:
    """Put a stand-in at `torch.flagos` for a device that was left out on purpose."""
    _place(UnavailableDevice(reason, None))


def remove() -> None:
    """Take the stand-in away, if there is one; the real device module is never touched."""
    if isinstance(sys.modules.get(_MODULE_NAME), UnavailableDevice):
        del sys.modules[_MODULE_NAME]
    if isinstance(getattr(torch, "flagos", None), UnavailableDevice):
        delattr(torch, "flagos")


def _place(module: UnavailableDevice) -> None:
    remove()
    sys.modules[_MODULE_NAME] = module
    setattr(torch, "flagos", module)  # noqa: B010 - mypy knows no attribute `flagos` of torch
