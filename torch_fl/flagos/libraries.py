"""What libraries that know devices by fixed lists need to be told, so that their users stay on flagos."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import torch

from torch_fl.flagos.index import DEVICE_TYPE, Device, existing_index

if TYPE_CHECKING:
    from os import PathLike

_DEVICE_VARIABLE = "ACCELERATE_TORCH_DEVICE"
_PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"
_PRECISIONS = ("no", "bf16")


def load_file(filename: str | PathLike[str], device: Device = DEVICE_TYPE) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file on a flagos device; `safetensors.torch.load_file` refuses its name.

    `device`: a flagos device, an index, or None for the current one. Tensors are copied one by one, so that the file
    is never whole in memory twice. Raises ImportError without safetensors, its SafetensorError for a file that is no
    such file, FileNotFoundError, and what other functions raise for a device that is none of flagos.
    """
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ImportError("torch.flagos.load_file reads safetensors files: pip install safetensors") from error
    place = torch.device(DEVICE_TYPE, existing_index(device))
    with safe_open(filename, framework="pt", device="cpu") as file:
        return {name: file.get_tensor(name).to(place) for name in file.keys()}  # noqa: SIM118 - it is no dictionary


def use_in_accelerate(device: Device = DEVICE_TYPE, mixed_precision: str | None = None) -> None:
    """Let `accelerate.Accelerator()` and transformers' `Trainer` take a flagos device instead of the CPU.

    To be called before the first of either is made, by default for the current device. It sets the environment
    variable ACCELERATE_TORCH_DEVICE, which both libraries read, for this process and its children; and
    ACCELERATE_MIXED_PRECISION where `mixed_precision` is given: "no" or "bf16" (`TrainingArguments(bf16=True)` is
    refused on devices it does not know).

    Warns where torch sees a CUDA device, which `Trainer` takes whatever the variable says.
    Raises ValueError for another precision, accelerate having a fixed list of devices for fp16, and RuntimeError where
    accelerate has chosen another device already.
    """
    if mixed_precision not in (None, *_PRECISIONS):
        raise ValueError(
            f"accelerate can do {' or '.join(map(repr, _PRECISIONS))} on flagos, but got: {mixed_precision!r}. "
            "For float16 use torch.autocast('flagos') and torch.amp.GradScaler('flagos') in a loop of your own."
        )
    place = torch.device(DEVICE_TYPE, existing_index(device))
    state = sys.modules.get("accelerate.state")
    chosen = state.PartialState._shared_state.get("device") if state is not None else None
    if chosen is not None and torch.device(chosen) != place:
        raise RuntimeError(
            f"accelerate works on {chosen} already: call torch.flagos.use_in_accelerate() before the first "
            "Accelerator, PartialState or TrainingArguments is made"
        )
    # With --as-cuda the second question is answered with flagos.
    if torch.cuda.is_available() and torch.device("cuda").type == "cuda":
        warnings.warn(
            "transformers' Trainer takes a CUDA device before any other: hide it (CUDA_VISIBLE_DEVICES=), or run the "
            "program with `flagos run --as-cuda`",
            stacklevel=2,
        )
    os.environ[_DEVICE_VARIABLE] = str(place)
    if mixed_precision is not None:
        os.environ[_PRECISION_VARIABLE] = mixed_precision
