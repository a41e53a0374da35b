"""What to do about an error with which a library, or torch, refuses the name of the device: one line for each."""

from __future__ import annotations

from typing import NamedTuple


class _Hint(NamedTuple):
    part_of_message: str
    advice: str
    without_as_cuda_only: bool = False


_HINTS = (
    _Hint("device flagos", "safetensors knows no device of this name: torch.flagos.load_file(path) loads its files"),
    _Hint(
        "doesn't support bf16/gpu",
        "transformers asks CUDA for bf16: in place of bf16=True call "
        "torch.flagos.use_in_accelerate(mixed_precision='bf16') before TrainingArguments",
    ),
    _Hint(
        "fp16 mixed precision requires a device in",
        "accelerate has a fixed list of devices for fp16: use bf16, or torch.amp.GradScaler('flagos') and "
        "torch.autocast('flagos') in a loop of your own",
    ),
    _Hint(
        "Torch not compiled with CUDA enabled",
        "the program names cuda: `flagos run --as-cuda …` lets cuda mean flagos in that process",
        without_as_cuda_only=True,
    ),
    _Hint(
        "Attempting to deserialize object on a CUDA device",
        "torch.load(…, map_location='flagos') reads it, and so does `flagos run --as-cuda …` with the program as it is",
        without_as_cuda_only=True,
    ),
)


def hint(error: BaseException | None, as_cuda: bool) -> str | None:
    """Return advice on how a program could have avoided the error that ended it, or None."""
    message = str(error) if error is not None else ""
    for row in _HINTS:
        if row.part_of_message in message and not (as_cuda and row.without_as_cuda_only):
            return row.advice
    return None
