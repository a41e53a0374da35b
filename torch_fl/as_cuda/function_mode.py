"""Maps CUDA device arguments of torch functions and tensor methods, through torch's hook for it, TorchFunctionMode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from torch_fl.as_cuda.names import any_cuda_name, mapped, mapped_arguments
from torch_fl.as_cuda.uses import Uses, called_from_torch
from torch_fl.loading import DEVICE_TYPE

# Its first argument is an equation: "cuda" is four axes there.
_NO_DEVICE_ARGUMENT = (torch.einsum,)

LEGACY_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
}
"""What `torch.cuda.<name>Tensor` holds."""


class CudaNames(TorchFunctionMode):
    """While entered, a CUDA device among the arguments of a torch function becomes the flagos device of that index.

    Torch keeps the stack of modes by thread. One object may be entered in several threads.
    """

    def __init__(self, uses: Uses) -> None:
        super().__init__()
        self._uses = uses
        self._special: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: self._tensor_cuda,
            torch.Tensor.type: self._tensor_type,
            torch.Tensor.is_cuda.__get__: self._tensor_is_cuda,  # type: ignore[attr-defined]
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, with device arguments mapped."""
        kwargs = kwargs or {}
        special = self._special.get(func)
        if special is not None:
            return special(*args, **kwargs)
        if any_cuda_name(args, kwargs) and func not in _NO_DEVICE_ARGUMENT:
            self._uses.note(_name_of(func))
            args, kwargs = mapped_arguments(args, kwargs)
        return func(*args, **kwargs)

    def _tensor_cuda(
        self,
        tensor: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        self._uses.note("torch.Tensor.cuda")
        place = torch.device(DEVICE_TYPE, device) if isinstance(device, int) else mapped(device)
        if place is None:
            place = torch.device(DEVICE_TYPE)
        return tensor.to(place, non_blocking=non_blocking, memory_format=memory_format)

    def _tensor_type(self, tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        """`tensor.type("torch.cuda.FloatTensor")`: the dtype and the device at once."""
        legacy = legacy_dtype(dtype)
        if legacy is None:
            return torch.Tensor.type(tensor, dtype, non_blocking) if dtype is not None else torch.Tensor.type(tensor)
        self._uses.note("torch.Tensor.type")
        return tensor.to(DEVICE_TYPE, legacy, non_blocking=non_blocking)

    def _tensor_is_cuda(self, tensor: torch.Tensor, *_: Any) -> bool:
        """True for flagos tensors too, where the program asks; torch, when it asks, means CUDA's own kernels."""
        if tensor.device.type == DEVICE_TYPE and not called_from_torch():
            self._uses.note("torch.Tensor.is_cuda")
            return True
        return tensor.is_cuda


def legacy_dtype(value: Any) -> torch.dtype | None:
    """Return the dtype of `torch.cuda.FloatTensor`, or of that name as a string; None for anything else."""
    name = value if isinstance(value, str) else f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
    if not (name.startswith("torch.cuda.") and name.endswith("Tensor")):
        return None
    return LEGACY_TYPES.get(name.removeprefix("torch.cuda.").removesuffix("Tensor"))


def _name_of(func: Any) -> str:
    if func is torch.device:
        return "torch.device"
    if getattr(func, "__name__", "") == "_parse_to":
        return "torch.nn.Module.to"
    name = resolve_name(func) or getattr(func, "__name__", None)
    return str(name) if name is not None else repr(func)
