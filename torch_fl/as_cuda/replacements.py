"""What torch offers no hook for: every attribute of torch and threading that is replaced while cuda stands for flagos.

Each table says why its names cannot be reached by a hook. All are put back when the context ends. Names of torch.cuda
that stand in no table end in `torch.cuda._lazy_init`, which says so.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

import torch
import torch.cuda.amp
import torch.cuda.memory
import torch.cuda.nvtx
import torch.cuda.random
import torch.cuda.streams
import torch.serialization

from torch_fl import flagos
from torch_fl.as_cuda.function_mode import LEGACY_TYPES, CudaNames, legacy_dtype
from torch_fl.as_cuda.names import any_cuda_name, mapped, mapped_arguments
from torch_fl.as_cuda.uses import Uses
from torch_fl.loading import DEVICE_TYPE

# Plain functions of the module, which no mode sees: torch.flagos has each under the same name, with the same meaning.
_SAME_NAME_FUNCTIONS = (
    "current_device", "current_stream", "default_stream", "device_count", "empty_cache", "get_device_capability",
    "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed",
    "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "manual_seed",
    "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_reserved", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_peak_memory_stats", "seed", "seed_all",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream", "stream",
    "synchronize",
)  # fmt: skip

# Classes of the module: the class of torch.flagos stands in, also in isinstance.
_SAME_NAME_CLASSES = ("Event", "Stream", "StreamContext", "device", "device_of")

# Where a name of the module is bound a second time.
_SUBMODULES = (torch.cuda.memory, torch.cuda.random, torch.cuda.streams)

# Older names of memory statistics.
_OLD_NAMES = {
    "memory_cached": flagos.memory_reserved,
    "max_memory_cached": flagos.max_memory_reserved,
    "reset_max_memory_cached": flagos.reset_peak_memory_stats,
}

# Questions about the CUDA toolkit, with the answer of a machine that has none, and calls that need do nothing.
_CONSTANT_ANSWERS: dict[str, Any] = {
    "get_arch_list": [],
    "get_gencode_flags": "",
    "ipc_collect": None,
    "is_tf32_supported": False,
}

# Marks for a CUDA profiler: there is none, and programs leave them in.
_PROFILER_MARKS = {"mark": None, "range_push": 0, "range_pop": 0, "range_start": 0, "range_end": None}

# Functions of the C extension that take a device type as a string and consult no mode; (name, name in their place,
# whether the device type comes first even if the program leaves it out, which means CUDA).
_AUTOCAST_STATE = (
    ("is_autocast_enabled", "is_autocast_enabled"),
    ("set_autocast_enabled", "set_autocast_enabled"),
    ("get_autocast_dtype", "get_autocast_dtype"),
    ("set_autocast_dtype", "set_autocast_dtype"),
    ("get_autocast_gpu_dtype", "get_autocast_dtype"),
    ("set_autocast_gpu_dtype", "set_autocast_dtype"),
)

# Types of the C extension whose constructors take a device and consult no mode.
_TYPES_WITH_A_DEVICE = ("Event", "Generator", "Stream")

# Before torch's own (20, 21, …), which would ask for a CUDA device.
_DESERIALIZER_PRIORITY = 5


class Replacements:
    """Context in which the replacements are in force, for the whole process."""

    def __init__(self, uses: Uses, mode: CudaNames) -> None:
        self._uses = uses
        self._mode = mode
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Replacements:
        with contextlib.ExitStack() as undo:
            self._undo = undo
            self._replace_module_functions()
            self._replace_classes()
            self._replace_autocast()
            self._replace_legacy_types()
            self._map_checkpoints()
            self._carry_the_mode()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def _set(self, owner: Any, name: str, value: Any) -> None:
        """Replace one attribute; a name that this torch does not have is left alone."""
        missing = object()
        original = getattr(owner, name, missing)
        if original is missing:
            return
        setattr(owner, name, value)
        self._undo.callback(setattr, owner, name, original)

    def _counted(self, name: str, target: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts the program's calls and passes them on, with device arguments mapped."""

        @functools.wraps(target)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            self._uses.note_direct(name)
            args, kwargs = mapped_arguments(args, kwargs)
            return target(*args, **kwargs)

        return replacement

    def _replace_module_functions(self) -> None:
        functions: dict[str, Callable[..., Any]] = {name: getattr(flagos, name) for name in _SAME_NAME_FUNCTIONS}
        functions |= _OLD_NAMES
        functions |= {name: _answer(value) for name, value in _CONSTANT_ANSWERS.items()}
        for name, target in functions.items():
            replacement = self._counted(f"torch.cuda.{name}", target)
            for module in (torch.cuda, *_SUBMODULES):
                self._set(module, name, replacement)
        for name, value in _PROFILER_MARKS.items():
            self._set(torch.cuda.nvtx, name, self._counted(f"torch.cuda.nvtx.{name}", _answer(value)))
        self._set(torch.cuda.nvtx, "range", self._counted("torch.cuda.nvtx.range", _no_range))
        self._set(torch.cuda, "default_generators", flagos.default_generators)
        # Everything of CUDA that is not mapped comes here: it must not start CUDA beside flagos, and must say why.
        self._set(torch.cuda, "_lazy_init", _refuse)

    def _replace_classes(self) -> None:
        for name in _SAME_NAME_CLASSES:
            replacement = self._counted_class(f"torch.cuda.{name}", getattr(flagos, name), always=True)
            for module in (torch.cuda, torch.cuda.streams):
                self._set(module, name, replacement)
        for name in _TYPES_WITH_A_DEVICE:
            self._set(torch, name, self._counted_class(f"torch.{name}", getattr(torch, name), always=False))

    def _counted_class(self, label: str, target: type, always: bool) -> type:
        """Return a class that makes objects of `target`, device arguments mapped, and is it for isinstance.

        `always`: count each object made, not only those made with the name of a CUDA device.
        """
        uses = self._uses

        class Meta(type(target)):  # type: ignore[misc]
            def __call__(cls, *args: Any, **kwargs: Any) -> Any:
                if cls is not replacement:  # a subclass of the program's
                    return super().__call__(*args, **kwargs)
                if always:
                    uses.note_direct(label)
                elif any_cuda_name(args, kwargs):
                    uses.note(label)
                args, kwargs = mapped_arguments(args, kwargs)
                return target(*args, **kwargs)

            def __instancecheck__(cls, instance: object) -> bool:
                if cls is not replacement:
                    return bool(type.__instancecheck__(cls, instance))
                return isinstance(instance, target)

            def __subclasscheck__(cls, subclass: type) -> bool:
                if cls is not replacement:
                    return bool(type.__subclasscheck__(cls, subclass))
                return issubclass(subclass, target)

        replacement: type = Meta(
            target.__name__, (target,), {"__module__": target.__module__, "__doc__": target.__doc__}
        )
        return replacement

    def _replace_autocast(self) -> None:
        """Mixed precision takes the device type as a string, in Python classes that consult no mode."""
        uses = self._uses
        for owner in (torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler):
            self._set(owner, "__init__", _init_with_device_type(owner, uses))
        for name, target_name in _AUTOCAST_STATE:
            self._set(torch, name, _autocast_state(name, getattr(torch, target_name), uses))
        available = torch.amp.autocast_mode.is_autocast_available
        for module in (torch.amp, torch.amp.autocast_mode):
            self._set(module, "is_autocast_available", self._counted("torch.amp.is_autocast_available", available))
        for name in ("custom_fwd", "custom_bwd"):
            original = getattr(torch.amp, name)
            replacement = self._counted(f"torch.amp.{name}", original)
            for module in (torch.amp, torch.amp.autocast_mode):
                self._set(module, name, replacement)
            self._set(torch.cuda.amp, name, functools.partial(replacement, device_type="cuda"))

    def _replace_legacy_types(self) -> None:
        """`torch.cuda.FloatTensor` and its like are types of the C extension that a build without CUDA refuses."""
        for name, dtype in LEGACY_TYPES.items():
            self._set(torch.cuda, f"{name}Tensor", _legacy_type(f"{name}Tensor", dtype, self._uses))
        original = torch.set_default_tensor_type

        def set_default_tensor_type(t: Any) -> None:
            dtype = legacy_dtype(t)
            if dtype is None:
                original(t)
                return
            self._uses.note("torch.set_default_tensor_type")
            torch.set_default_dtype(dtype)
            torch.set_default_device(DEVICE_TYPE)

        self._set(torch, "set_default_tensor_type", set_default_tensor_type)

    def _map_checkpoints(self) -> None:
        """`torch.load` of what was saved on CUDA, or with a CUDA map_location: torch's own hook, a deserializer."""

        def restore(storage: Any, location: str) -> Any:
            if location.partition(":")[0] != "cuda":
                return None
            self._uses.note("torch.load")
            return torch.serialization.default_restore_location(storage, mapped(location))  # type: ignore[no-untyped-call]

        torch.serialization.register_package(_DESERIALIZER_PRIORITY, _no_tag, restore)
        registry = torch.serialization._package_registry
        self._undo.callback(registry.remove, (_DESERIALIZER_PRIORITY, _no_tag, restore))

    def _carry_the_mode(self) -> None:
        """A mode belongs to a thread, and is off inside `Tensor.backward`: carry it where the program's code runs."""
        mode = self._mode
        run_backward = getattr(torch.autograd, "_engine_run_backward")  # noqa: B009 - it is private

        @functools.wraps(run_backward)
        def with_mode(*args: Any, **kwargs: Any) -> Any:
            # The engine hands the caller's modes to its threads, where hooks, custom functions and recomputation run.
            with mode:
                return run_backward(*args, **kwargs)

        self._set(torch.autograd, "_engine_run_backward", with_mode)
        start = threading.Thread.start

        @functools.wraps(start)
        def start_with_mode(thread: threading.Thread) -> None:
            run = thread.run

            def run_with_mode() -> None:
                with mode:
                    run()

            thread.run = run_with_mode  # type: ignore[method-assign]
            start(thread)

        self._set(threading.Thread, "start", start_with_mode)


def _answer(value: Any) -> Callable[..., Any]:
    def answer(*_: Any, **__: Any) -> Any:
        return list(value) if isinstance(value, list) else value

    return answer


def _no_range(message: str, *args: Any, **kwargs: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _no_tag(storage: Any) -> None:
    """No storage is saved as one of CUDA."""


def _refuse() -> NoReturn:
    raise RuntimeError(
        "flagos run --as-cuda: this use of CUDA is not mapped to flagos. docs/scripts.md lists what is; "
        "the traceback shows what the program asked for."
    )


def _init_with_device_type(owner: type, uses: Uses) -> Callable[..., None]:
    """Return the `__init__` of autocast or GradScaler with its device type, whose default may be "cuda", mapped."""
    original = owner.__init__  # type: ignore[misc]
    label = f"torch.amp.{owner.__name__}"

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if owner is torch.amp.grad_scaler.GradScaler and not args and "device" not in kwargs:
            args = ("cuda",)
        if any_cuda_name(args, kwargs):
            uses.note(label)
        args, kwargs = mapped_arguments(args, kwargs)
        original(self, *args, **kwargs)

    return __init__


def _autocast_state(name: str, target: Callable[..., Any], uses: Uses) -> Callable[..., Any]:
    """Return a function of autocast's state; without a device type, which is CUDA's for these, it is flagos's."""

    @functools.wraps(target)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        named = "device_type" in kwargs or any(isinstance(value, str) for value in args)
        if any_cuda_name(args, kwargs) or not named:
            uses.note_direct(f"torch.{name}")
        args, kwargs = mapped_arguments(args, kwargs)
        return target(*args, **kwargs) if named else target(DEVICE_TYPE, *args, **kwargs)

    return replacement


def _legacy_type(name: str, dtype: torch.dtype, uses: Uses) -> type:
    """Return what stands for `torch.cuda.<name>`: called with sizes or data it makes a tensor on flagos."""

    class Meta(type):
        def __call__(cls, *args: Any) -> torch.Tensor:
            uses.note(f"torch.cuda.{name}")
            if len(args) == 1 and not isinstance(args[0], int | torch.Size):
                return torch.as_tensor(args[0], dtype=dtype, device=DEVICE_TYPE)
            sizes: Sequence[int] = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args
            return torch.empty(sizes or (0,), dtype=dtype, device=DEVICE_TYPE)

        def __instancecheck__(cls, instance: object) -> bool:
            return (
                isinstance(instance, torch.Tensor) and instance.device.type == DEVICE_TYPE and instance.dtype == dtype
            )

    return Meta(name, (), {"__module__": "torch.cuda"})
