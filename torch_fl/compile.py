"""torch.compile on flagos: the backends "eager" and "aot_eager" work, inductor refuses with one error that says so.

Nothing here imports Dynamo or inductor; both are heavy, and most programs never compile. torch's compiler finds us in
two ways: inductor asks the device module `torch.flagos` for its code generators by name (the four objects below), and
Dynamo gets a DeviceInterface as soon as somebody imports its registry.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

_DEVICE_TYPE = "flagos"
_DYNAMO_REGISTRY = "torch._dynamo.device_interface"

REFUSAL = (
    "torch.compile: inductor, the default backend, has no code generator for the device 'flagos' yet. "
    'Use torch.compile(model, backend="aot_eager"), which captures the same graphs and runs them with the '
    'device\'s own kernels, or backend="eager".'
)


class _NoCodeGenerator:
    """Stands where inductor expects a code generator, and refuses at the first question."""

    @property
    def supports_caching(self) -> NoReturn:
        # Inductor's first question to a backend, before it lowers anything or looks into its cache.
        raise NotImplementedError(REFUSAL)

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        raise NotImplementedError(REFUSAL)


Scheduling = _NoCodeGenerator()
PythonWrapperCodegen = _NoCodeGenerator()
CppWrapperCodegen = _NoCodeGenerator()
WrapperFxCodegen = _NoCodeGenerator()


def register() -> None:
    """Make the device known to Dynamo: now if its registry is imported already, else when it is."""
    registry = sys.modules.get(_DYNAMO_REGISTRY)
    if registry is not None:
        _register_interface(registry)
    else:
        sys.meta_path.insert(0, _RegistryFinder())


def _register_interface(registry: ModuleType) -> None:
    from torch_fl import flagos

    base: Any = registry.__dict__["DeviceInterface"]

    class FlagosInterface(base):  # type: ignore[misc]  # the base is known only at run time
        """What Dynamo asks of a device, answered by `torch.flagos`."""

        device = flagos.device
        Event = flagos.Event
        Stream = flagos.Stream

        class Worker:
            """Questions that inductor's worker processes ask; nothing but the properties is known to them."""

            set_device = staticmethod(flagos.set_device)
            current_device = staticmethod(flagos.current_device)
            get_device_properties = staticmethod(flagos.get_device_properties)

        current_device = staticmethod(flagos.current_device)
        set_device = staticmethod(flagos.set_device)
        exchange_device = staticmethod(flagos._exchange_device)
        maybe_exchange_device = staticmethod(flagos._maybe_exchange_device)
        device_count = staticmethod(flagos.device_count)
        is_available = staticmethod(flagos.is_available)
        stream = staticmethod(flagos.stream)
        current_stream = staticmethod(flagos.current_stream)
        set_stream = staticmethod(flagos.set_stream)
        _set_stream_by_id = staticmethod(flagos._set_stream_by_id)
        synchronize = staticmethod(flagos.synchronize)
        get_device_properties = staticmethod(flagos.get_device_properties)
        get_compute_capability = staticmethod(flagos.get_device_capability)
        is_bf16_supported = staticmethod(flagos.is_bf16_supported)
        memory_allocated = staticmethod(flagos.memory_allocated)

    add = registry.__dict__["register_interface_for_device"]
    add(_DEVICE_TYPE, FlagosInterface)
    for index in range(flagos.device_count()):
        add(f"{_DEVICE_TYPE}:{index}", FlagosInterface)


class _RegistryFinder(importlib.abc.MetaPathFinder):
    """Waits for the import of Dynamo's device registry; torch offers no hook for a device that is loaded before it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _DYNAMO_REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegistryLoader(spec.loader)
        return spec


class _RegistryLoader(importlib.abc.Loader):
    """Runs the registry's own loader, then registers flagos in the finished module."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Tracebacks and source lookups go through these, and want the loader that can read the file.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register_interface(module)
