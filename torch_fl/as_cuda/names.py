"""Which values name a CUDA device, and what stands in their place."""

from __future__ import annotations

import re
from typing import Any

import torch

from torch_fl.loading import DEVICE_TYPE

_CUDA_DEVICE = re.compile(r"cuda(:\d+)?")

_NAMING_TYPES = frozenset({str, torch.device})


def is_cuda_name(value: object) -> bool:
    """True for "cuda", "cuda:1" and a torch.device of that type."""
    if isinstance(value, str):
        return _CUDA_DEVICE.fullmatch(value) is not None
    return isinstance(value, torch.device) and value.type == "cuda"


def mapped(value: Any) -> Any:
    """Return the flagos device, with the same index, for what names a CUDA device, and any other value as it is."""
    if not is_cuda_name(value):
        return value
    if isinstance(value, str):
        return DEVICE_TYPE + value.removeprefix("cuda")
    return torch.device(f"{DEVICE_TYPE}{str(value).removeprefix('cuda')}")


def any_cuda_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if one of the arguments of a call names a CUDA device. Every call of a torch function comes here."""
    for value in args:
        if type(value) in _NAMING_TYPES and is_cuda_name(value):
            return True
    if kwargs:
        for value in kwargs.values():
            if type(value) in _NAMING_TYPES and is_cuda_name(value):
                return True
    return False


def mapped_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with `mapped` applied to each."""
    return tuple(map(mapped, args)), {name: mapped(value) for name, value in kwargs.items()}
