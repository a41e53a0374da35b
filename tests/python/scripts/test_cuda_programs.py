"""Three programs that hard-code cuda run under `flagos run --as-cuda` and print the losses of a CPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_flagos

PROGRAMS = Path(__file__).parent / "programs"

#: What somebody without an accelerator would change by hand in these programs, in this order.
EDITS = [
    (r"\.cuda\([^)]*\)", ""),
    (r"\.pin_memory\(\)", ""),
    (r"pin_memory=True", "pin_memory=False"),
    (r"torch\.cuda\.is_available\(\)", "True"),
    (r"with torch\.cuda\.stream\(side\):", "if True:"),
    (r".*(begin, end =|begin\.|end\.|side\.|side =|assert inputs\.is_cuda).*\n", ""),
    (r".*torch\.cuda\..*\n", ""),
    (r'"cuda(:0)?"', '"cpu"'),
    (r"print\(f\"peak .*\n", ""),
]


def on_the_cpu(source: str) -> str:
    """Return the program with cuda edited out."""
    _, code = source.split('"""\n', 1)
    for pattern, text in EDITS:
        code = re.sub(pattern, text, code)
    assert "cuda" not in code.lower().replace("this program needs cuda", "")
    return code


ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
AS_CUDA = [sys.executable, "-m", "torch_fl.cli", "run", "--as-cuda"]

#: Lines that both must print, how many, and what the list of mapped uses must name.
EXPECTED = {
    "classifier": (
        9,
        ["torch.Tensor.cuda", "torch.amp.autocast", "torch.amp.GradScaler"],
    ),
    "language_model": (8, ["torch.Tensor.to", "torch.tensor"]),
    "streams": (
        8,
        [
            "torch.cuda.is_available", "torch.cuda.set_device", "torch.device", "torch.cuda.Stream",
            "torch.cuda.Event", "torch.cuda.stream", "torch.Tensor.is_cuda", "torch.load",
            "torch.cuda.max_memory_allocated",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_the_losses_of_the_cpu(name: str, tmp_path: Path, run_command) -> None:
    count, uses = EXPECTED[name]
    source = (PROGRAMS / f"{name}.py").read_text()
    (tmp_path / "cpu.py").write_text(on_the_cpu(source))
    expected = run_command([sys.executable, "cpu.py"], **ENVIRONMENT).check().stdout.splitlines()
    (tmp_path / f"{name}.py").write_text(source)
    done = run_command([*AS_CUDA, f"{name}.py"], **ENVIRONMENT).check()
    printed = [line for line in done.stdout.splitlines() if not line.startswith(("device", "peak"))]
    assert len(printed) == count
    assert printed == expected
    for use in uses:
        assert re.search(rf"\[flagos as-cuda\] +{name}\.py:\d+ +{re.escape(use)} × \d", done.stderr), use


def test_a_program_without_the_flag_finds_no_cuda(run_command) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device, on which the program would run")
    done = run_command([*AS_CUDA[:-1], str(PROGRAMS / "streams.py")])
    assert done.returncode == 1
    assert "this program needs CUDA" in done.stderr
    assert "as-cuda]" not in done.stderr


def test_memory_is_that_of_the_device(run_command) -> None:
    done = run_command([*AS_CUDA, str(PROGRAMS / "streams.py")]).check()
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("peak"))
    peak, now = map(float, re.findall(r"\d+\.\d+", line))
    assert 0 < now <= peak < 1
