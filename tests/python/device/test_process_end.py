"""The end of a process that used the device: silent, whatever its log or its memory limit was."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_flagos

BACKWARD = """
    import torch
    x = torch.ones(4, device="flagos", requires_grad=True)
    (x * 2).sum().backward()
"""


def test_the_log_ends_with_the_program(run_python) -> None:
    """Waiting for the backward threads takes calls on the device, which are not the program's."""
    code = "import sys, torch; torch.abs(torch.ones(3, device='flagos')); print('end', file=sys.stderr)"
    for words in ("dispatch", "device", "dispatch,fallback,device"):
        done = run_python(code, FLAGOS_LOG=words).check()
        assert done.stderr.splitlines()[-1] == "end", words


def test_with_all_memory_in_use(run_python) -> None:
    done = run_python("import torch; x = torch.ones(3, device='flagos')", FLAGOS_HOST_MEMORY="12").check()
    assert done.stderr == ""


@pytest.mark.parametrize("devices", ["1", "3"])
def test_after_a_backward(devices: str, run_python) -> None:
    assert run_python(BACKWARD, FLAGOS_HOST_DEVICES=devices).check().stderr == ""
