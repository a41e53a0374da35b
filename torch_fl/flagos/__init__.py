"""The module `torch.flagos`: what scripts use of torch.cuda, for the device `flagos`."""

from __future__ import annotations

import torch

# torch's compiler asks the device module for these four by name; until the device has a code generator they refuse.
from torch_fl.compile import CppWrapperCodegen, PythonWrapperCodegen, Scheduling, WrapperFxCodegen

# torch's deserializer reads torch.<device>._utils._get_device_index.
from torch_fl.flagos import index as _utils
from torch_fl.flagos import memory, random, streams
from torch_fl.flagos.devices import (
    DeviceProperties,
    _exchange_device,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from torch_fl.flagos.libraries import load_file, use_in_accelerate
from torch_fl.flagos.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_memory_limit,
    set_per_process_memory_fraction,
)
from torch_fl.flagos.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_fl.flagos.routing import backends, reset_route_stats, route_stats, routes
from torch_fl.flagos.streams import (
    Event,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    set_stream,
    stream,
)

OutOfMemoryError = torch.OutOfMemoryError

load_error: Exception | None = None
"""None: the device is loaded. The stand-in that `torch.flagos` is otherwise keeps the reason here."""

__all__ = [
    "CppWrapperCodegen",
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "PythonWrapperCodegen",
    "Scheduling",
    "Stream",
    "StreamContext",
    "WrapperFxCodegen",
    "_exchange_device",
    "_is_in_bad_fork",
    "_lazy_init",
    "_maybe_exchange_device",
    "_set_stream_by_id",
    "_utils",
    "backends",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "load_error",
    "load_file",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "reset_route_stats",
    "route_stats",
    "routes",
    "seed",
    "seed_all",
    "set_device",
    "set_memory_limit",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "streams",
    "synchronize",
    "use_in_accelerate",
]


def __getattr__(name: str) -> bool:
    """`_initialized`, which torch.utils.checkpoint reads to decide whether it must keep this device's random state."""
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module 'torch.flagos' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what is public, and not what this file needs to say it."""
    return sorted(__all__)


del annotations, torch
