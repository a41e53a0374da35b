"""Complaint 6, fork: importing and asking must leave children usable; using the device first gives advice, no hang.

vllm-ascend#4502, vllm-ascend#3133, vllm-ascend#7256, LlamaFactory#7447
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_flagos

QUESTIONS = """
torch.flagos.is_available(), torch.flagos.device_count(), torch.flagos.is_initialized()
torch.accelerator.is_available(), torch.accelerator.device_count(), torch.manual_seed(3)
torch.device("flagos:0"), torch.nn.Linear(2, 2), torch.flagos.manual_seed_all(4)
"""

IN_CHILD = """
import os, torch
{before}
child = os.fork()
if child == 0:
    try:
        print(torch.ones(3, device="flagos").sum().item(), flush=True)
    except RuntimeError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_questions_leave_children_usable(run_python) -> None:
    assert run_python(IN_CHILD.format(before=QUESTIONS)).check().stdout.strip() == "3.0"


@pytest.mark.parametrize("use", [
    "torch.nn.Linear(2, 2).flagos()",
    pytest.param("torch.ones(1, device='flagos')", marks=pytest.mark.full),
    pytest.param("torch.ones(1).to('flagos')", marks=pytest.mark.full),
])  # fmt: skip
def test_use_before_the_fork_gives_advice(use: str, run_python) -> None:
    text = run_python(IN_CHILD.format(before=use)).check().stdout
    for word in ("RuntimeError", "flagos", "fork", "spawn"):
        assert word in text, text


def test_loader_whose_workers_use_the_device_gives_advice(run_python) -> None:
    code = """
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.ones(2, device="flagos").cpu() * index
        if __name__ == "__main__":
            torch.ones(1, device="flagos")
            try:
                list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork"))
            except RuntimeError as error:
                print("refused", "spawn" in str(error))
            spawned = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="spawn")
            print([batch.sum().item() for batch in spawned])
    """
    lines = run_python(code).check().stdout.splitlines()
    assert lines == ["refused True", "[0.0, 2.0, 4.0, 6.0]"]
