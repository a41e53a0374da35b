"""`torch.flagos` with wrong arguments: torch.cuda's type of error, and a text with the value and what is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

COUNT = torch.flagos.device_count() if hasattr(torch, "flagos") else 0
BEYOND = f"device index {COUNT} is out of range; there "

WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "synchronize": (lambda: torch.flagos.synchronize(COUNT), RuntimeError, BEYOND),
    "set_device": (lambda: torch.flagos.set_device(COUNT), RuntimeError, BEYOND),
    "set_device of the CPU": (lambda: torch.flagos.set_device("cpu"), ValueError, "flagos device, but got: cpu"),
    "set_device of a float": (lambda: torch.flagos.set_device(1.5), TypeError, "1.5"),
    "get_device_name": (lambda: torch.flagos.get_device_name(COUNT), RuntimeError, BEYOND),
    "memory_stats": (lambda: torch.flagos.memory_stats(COUNT), RuntimeError, BEYOND),
    "tensor": (lambda: torch.ones(1, device=f"flagos:{COUNT}"), RuntimeError, BEYOND),
    "to": (lambda: torch.ones(1).to(f"flagos:{COUNT}"), RuntimeError, BEYOND),
    "generator": (lambda: torch.Generator(f"flagos:{COUNT}"), RuntimeError, BEYOND),
    "default_generators": (lambda: torch.flagos.default_generators[COUNT], IndexError, f"each of {COUNT} devices"),
    "stream of a number": (lambda: torch.flagos.stream(5), TypeError, "stream of a flagos device, but got: 5"),
    "set_stream of a number": (lambda: torch.flagos.set_stream(5), TypeError, "but got: 5"),
    "set_stream of the CPU": (lambda: torch.flagos.set_stream(torch.Stream("cpu")), ValueError, "cpu"),
    "negative limit": (lambda: torch.flagos.set_memory_limit(-5), ValueError, "-5"),
    "limit as text": (lambda: torch.flagos.set_memory_limit("1G"), TypeError, "'1G'"),
    "limit as a float": (lambda: torch.flagos.set_memory_limit(1.5), TypeError, "1.5"),
    "limit beyond 64 bits": (lambda: torch.flagos.set_memory_limit(2**70), ValueError, str(2**70)),
    "fraction above 1": (lambda: torch.flagos.set_per_process_memory_fraction(2.0), ValueError, "2.0"),
    "fraction as an integer": (lambda: torch.flagos.set_per_process_memory_fraction(1), TypeError, "1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_argument(name: str) -> None:
    call, error, words = WRONG[name]
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_out_of_memory_error_has_cudas_place() -> None:
    assert torch.flagos.OutOfMemoryError is torch.OutOfMemoryError


def test_a_memory_fraction_is_of_what_the_device_started_with(run_python) -> None:
    """Asked twice it is the same, and a limit set before does not count; FLAGOS_HOST_MEMORY does."""
    code = """
        import torch
        for step in range(3):
            torch.flagos.set_per_process_memory_fraction(0.5)
            print(torch.flagos.mem_get_info()[1])
            torch.flagos.set_memory_limit(100)
    """
    assert run_python(code, FLAGOS_HOST_MEMORY="1000").check().stdout.split() == ["500"] * 3
