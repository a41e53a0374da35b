"""Load the device once: extension, name, device module, generated methods, so that a failure leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import warnings

import torch
from torch.utils import backend_registration

from torch_fl import unavailable

DEVICE_TYPE = "flagos"
_UNNAMED_BACKEND = "privateuseone"

_loaded = False


def is_loaded() -> bool:
    """Return True once `load` has succeeded in this process."""
    return _loaded


def load() -> None:
    """Load the `flagos` device; further calls do nothing.

    The device name comes last. From the moment it is set torch takes the process's accelerator to be ours, so a wrong
    setting or routing file must have been found before.

    Raises ImportError when the extension is missing or does not fit the installed torch, RuntimeError when another
    PrivateUse1 backend has the device slot, RuntimeError or ValueError for wrong settings and routing files.
    """
    global _loaded
    if _loaded:
        return
    name = torch._C._get_privateuse1_backend_name()
    if name not in (_UNNAMED_BACKEND, DEVICE_TYPE):
        raise RuntimeError(
            f"the device {DEVICE_TYPE!r} cannot be loaded: the backend {name!r} already has torch's one slot for "
            f"out-of-tree devices in this process. Set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only one of them."
        )
    if "torch_fl._C" not in sys.modules and importlib.util.find_spec("torch_fl._C") is None:
        raise ImportError(
            f"the extension torch_fl._C is not built for Python {platform.python_version()}: there is none in "
            f"{os.path.dirname(__file__)}. `make build` builds it."
        )
    try:
        from torch_fl import _C
    except ImportError as error:
        raise ImportError(
            f"the extension torch_fl._C does not fit torch {torch.__version__}: {error}. "
            "It must be built for this Python and this torch: `make build`."
        ) from error

    for warning in _C.register_device():
        warnings.warn(f"flagos: {warning}", RuntimeWarning, stacklevel=2)

    from torch_fl import compile as compile_support
    from torch_fl import flagos, patches

    unavailable.remove()
    backend_registration.rename_privateuse1_backend(DEVICE_TYPE)
    torch._register_device_module(DEVICE_TYPE, flagos)  # type: ignore[no-untyped-call]
    # Without these aliases `import torch.flagos.memory` would execute a second copy of the module.
    for submodule in ("memory", "random", "streams"):
        sys.modules[f"torch.{DEVICE_TYPE}.{submodule}"] = sys.modules[f"{flagos.__name__}.{submodule}"]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    compile_support.register()
    patches.apply()
    _loaded = True


def load_on_purpose() -> Exception | None:
    """Load for somebody who wrote `import torch_fl`: raise what went wrong, or return it to the `flagos` command.

    The command has to start where the device cannot: `flagos doctor` explains why, and `flagos check` reads the
    very file that stopped the load.
    """
    try:
        load()
    except Exception as error:
        if not _is_flagos_command():
            raise
        unavailable.install(error)
        return error
    return None


def _is_flagos_command() -> bool:
    """True in the process of the console script `flagos`, or of `python -m torch_fl.cli`."""
    # An embedding program may leave sys.argv empty.
    program = sys.argv[0] if sys.argv else ""
    if os.path.splitext(os.path.basename(program))[0] == "flagos":
        return True
    arguments = sys.orig_argv
    return "-m" in arguments and arguments[arguments.index("-m") + 1 :][:1] == ["torch_fl.cli"]
