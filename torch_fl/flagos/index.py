"""Turn what a caller names as a device into a flagos device index, by torch.cuda's rules.

torch's deserializer looks for `_get_device_index` in an attribute `_utils` of the device module; `torch.flagos._utils`
is this module.
"""

from __future__ import annotations

import torch

from torch_fl import _C

Device = torch.device | str | int | None
"""A torch.device or string of type flagos, an index, or None for the current device."""

DEVICE_TYPE = "flagos"


def _get_device_index(device: Device, optional: bool = False) -> int:
    """Return the index that `device` names; negative integers are returned as they are, and mean "no device".

    With `optional`, None and a flagos device without index mean the current device; without it they raise ValueError,
    as does a device of another type. TypeError for anything that is no device. The range is not checked here.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    index: int | None = None
    if isinstance(device, torch.device):
        if device.type != DEVICE_TYPE:
            raise ValueError(f"Expected a flagos device, but got: {device}")
        # torch's own annotation leaves the None out.
        index = device.index
    elif device is not None:
        raise TypeError(f"Expected a torch.device, a string, an integer or None, but got: {device!r}")
    if index is None:
        if not optional:
            raise ValueError(f"Expected a flagos device with an index, or an integer, but got: {device!r}")
        return _C.current_device()
    return index


def existing_index(device: Device) -> int:
    """Return the index that `device` names, None being the current device.

    Raises RuntimeError, with the index and the number of devices, when there is no such device, and what
    `_get_device_index` raises.
    """
    index = _get_device_index(device, optional=True)
    count = _C.device_count()
    if not 0 <= index < count:
        there_are = "there is 1 device" if count == 1 else f"there are {count} devices"
        raise RuntimeError(f"flagos: device index {index} is out of range; {there_are}")
    return index
