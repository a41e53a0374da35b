"""What torch offers no hook for: each patch mends one named upstream fault, and checks first that it is there.

A patch is applied when the device is loaded, and only if this torch still has the fault.
"""

from __future__ import annotations

import enum
from typing import cast

import torch
from torch.utils.dlpack import DLDeviceType

from torch_fl import _C

DEVICE_TYPE = "flagos"


def apply() -> None:
    """Apply every patch that this torch needs; a second call does nothing."""
    _name_the_dlpack_device()
    _choose_linear_cross_entropy_as_the_cpu()
    _choose_a_process_group()


def _name_the_dlpack_device() -> None:
    """`Tensor.__dlpack_device__` compares with the literal "privateuse1", which no renamed backend matches.

    So `torch.from_dlpack(tensor)` and `numpy`-style consumers fail before they can ask for the capsule. Upstream: the
    comparison in torch/_tensor.py, unchanged from 2.11 to 2.13; the C++ side maps the device to kDLExtDev correctly.
    """
    original = torch.Tensor.__dlpack_device__
    if hasattr(original, "flagos_original") or "privateuse1" not in original.__code__.co_consts:
        return

    def __dlpack_device__(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
        if self.device.type == DEVICE_TYPE:
            return DLDeviceType.kDLExtDev, self.device.index
        return original(self)

    __dlpack_device__.flagos_original = original  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]


def _choose_linear_cross_entropy_as_the_cpu() -> None:
    """`F.linear_cross_entropy` looks its defaults up by device name, and takes less accurate ones for unknown names.

    On CPU memory the CPU's are the right ones: its rows of the table, and float32 to accumulate in. Both are private
    and new in torch 2.13; there is no hook.
    """
    if _C.accelerator_name() != "host":
        return
    try:
        from torch.nn.modules import linear_cross_entropy_options as options
    except ImportError:
        return  # an older torch, which has no such operator
    defaults = getattr(options, "_AUTO_DEFAULTS", None)
    if isinstance(defaults, dict):
        for (device, dtype), row in list(defaults.items()):
            if device == "cpu":
                defaults.setdefault((DEVICE_TYPE, dtype), row)
    chosen = getattr(options.LinearCrossEntropyOptions, "_resolve_auto_acc_dtype", None)
    if chosen is None or hasattr(chosen, "flagos_original"):
        return

    def _resolve_auto_acc_dtype(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        on_cpu_memory = device is not None and device.type == DEVICE_TYPE
        return cast("torch.dtype | None", chosen(dtype, torch.device("cpu") if on_cpu_memory else device))

    _resolve_auto_acc_dtype.flagos_original = chosen  # type: ignore[attr-defined]
    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(_resolve_auto_acc_dtype)  # type: ignore[method-assign]


def _choose_a_process_group() -> None:
    """`init_process_group()` without a backend asks a table by the accelerator's name, and fails for unknown names.

    So it failed for programs that use nothing but CPU tensors, too. The table holds one backend for one device, while
    gloo serves the host and flagos on `host` alike; what is asked for by name goes through the same class.
    """
    if _C.accelerator_name() != "host" or not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    original = c10d.BackendConfig.__init__
    if hasattr(original, "flagos_original") or DEVICE_TYPE in c10d.Backend.default_device_backend_map:
        return

    def __init__(self: c10d.BackendConfig, backend: c10d.Backend) -> None:
        if str(backend) == c10d.Backend.UNDEFINED:
            backend = c10d.Backend("gloo")
        original(self, backend)

    __init__.flagos_original = original  # type: ignore[attr-defined]
    c10d.BackendConfig.__init__ = __init__  # type: ignore[method-assign]
