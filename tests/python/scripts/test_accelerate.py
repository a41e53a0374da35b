"""accelerate on flagos: `torch.flagos.use_in_accelerate` and five steps of a loop, with the CPU's losses."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from torch_fl.cli.hints import hint

pytestmark = pytest.mark.needs_flagos


def steps(accelerate, checkpoints, sentences, **options) -> tuple[str, list[float]]:
    """Five steps; returns the device of the accelerator, the model and the data, and the losses."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(**options)
    model_class, folder = checkpoints["llama"]
    model = model_class.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(sentences, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, places = [], {accelerator.device.type}
    for batch in loader:
        with accelerator.autocast():
            loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).item())
        places |= {batch["input_ids"].device.type, loss.device.type}
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    (place,) = places
    return place, losses


def test_five_steps(accelerate, checkpoints, sentences) -> None:
    place, expected = steps(accelerate, checkpoints, sentences, cpu=True)
    assert place == "cpu"
    torch.flagos.use_in_accelerate()
    place, losses = steps(accelerate, checkpoints, sentences)
    assert place == "flagos"
    assert len(losses) == 5
    assert losses == expected


@pytest.mark.parametrize("asked", ["argument", "function"])
def test_five_steps_in_bfloat16(asked: str, accelerate, checkpoints, sentences) -> None:
    _, single = steps(accelerate, checkpoints, sentences, cpu=True)
    _, expected = steps(accelerate, checkpoints, sentences, cpu=True, mixed_precision="bf16")
    assert expected != single
    if asked == "argument":
        torch.flagos.use_in_accelerate()
        place, losses = steps(accelerate, checkpoints, sentences, mixed_precision="bf16")
    else:
        torch.flagos.use_in_accelerate(mixed_precision="bf16")
        place, losses = steps(accelerate, checkpoints, sentences)
    assert place == "flagos"
    assert losses == expected


def test_a_chosen_device(accelerate) -> None:
    torch.flagos.use_in_accelerate("flagos:1")
    assert accelerate.Accelerator().device == torch.device("flagos:1")
    torch.flagos.use_in_accelerate(1)
    assert os.environ["ACCELERATE_TORCH_DEVICE"] == "flagos:1"


def test_too_late(accelerate) -> None:
    assert accelerate.Accelerator().device.type == "cpu"
    with pytest.raises(RuntimeError, match="accelerate works on cpu already"):
        torch.flagos.use_in_accelerate()
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ


@pytest.mark.parametrize("precision", ["fp16", "float32", 16])
def test_refused_precision(precision, accelerate) -> None:
    with pytest.raises(ValueError, match="accelerate can do 'no' or 'bf16' on flagos, but got"):
        torch.flagos.use_in_accelerate(mixed_precision=precision)
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ


def test_a_cuda_device_beside_it_is_told(accelerate, monkeypatch) -> None:
    """`Trainer` takes CUDA, whatever the variable says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="CUDA_VISIBLE_DEVICES"):
        torch.flagos.use_in_accelerate()


def test_accelerate_refuses_fp16(accelerate) -> None:
    """Why `use_in_accelerate` does. Should this pass one day, mend it and docs/scripts.md."""
    torch.flagos.use_in_accelerate()
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in") as caught:
        accelerate.Accelerator(mixed_precision="fp16")
    assert "torch.amp.GradScaler('flagos')" in hint(caught.value, as_cuda=False)


def test_without_the_function_it_takes_the_cpu(accelerate) -> None:
    """Why there is `use_in_accelerate`. Should this be flagos one day, mend docs/scripts.md."""
    assert accelerate.Accelerator().device.type == "cpu"


AS_CUDA = """
from accelerate import Accelerator
from transformers import TrainingArguments
print(Accelerator(mixed_precision="bf16").device, TrainingArguments(bf16=True).device)
"""


def test_both_libraries_follow_as_cuda(run_command, accelerate, transformers, tmp_path) -> None:
    (tmp_path / "program.py").write_text(AS_CUDA)
    done = run_command([sys.executable, "-m", "torch_fl.cli", "run", "--as-cuda", "program.py"], HF_HUB_OFFLINE="1")
    assert done.check().stdout.split() == ["flagos", "flagos:0"]
