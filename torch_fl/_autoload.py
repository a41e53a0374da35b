"""Entry point of the group `torch.backends`: `import torch` calls it last, and must not fail because of it.

torch itself respects TORCH_DEVICE_BACKEND_AUTOLOAD=0 and does not get here then.
"""

from __future__ import annotations

import glob
import os
import sys
import traceback

import torch

import torch_fl
from torch_fl import loading, unavailable

# Their text says what is wrong; of anything else the traceback is wanted.
_EXPLAINED = (ImportError, OSError, RuntimeError, ValueError)


def reason_to_stay_out() -> str | None:
    """Return why `import torch` alone does not load flagos in this environment, or None where it does.

    Where torch is built for CUDA and there is a GPU, naming a PrivateUse1 device makes every backward over CUDA
    tensors of the process fail (pytorch#161129), so it takes a word from the user. No driver is initialised to find
    out, since that would be lost to forked children.
    """
    if os.environ.get("FLAGOS_ACCELERATOR"):
        return None
    if torch.backends.cuda.is_built() and _may_have_gpu():  # type: ignore[no-untyped-call]
        return (
            f"torch {torch.__version__} is built for CUDA, and a second device breaks CUDA's backward in this process. "
            "Set FLAGOS_ACCELERATOR, or write `import torch_fl`, to have flagos all the same."
        )
    return None


def _may_have_gpu() -> bool:
    """True unless neither NVML nor a device node of the driver tells of an NVIDIA GPU."""
    count = torch.cuda._device_count_nvml()  # negative: there is no NVML to ask
    return count > 0 or bool(glob.glob("/dev/nvidia*") or glob.glob("/dev/nvhost*"))


def autoload() -> None:
    """Load the flagos device at the end of `import torch`; never raises.

    A failure goes to stderr with its cause, and stays readable at `torch.flagos.load_error`. After a failure, and
    where flagos stays out, `import torch_fl` tries again and raises.
    """
    if torch_fl._imported_on_purpose:
        return
    reason = reason_to_stay_out()
    if reason is not None:
        unavailable.install_for_reason(reason)
        _forget_import()
        return
    try:
        loading.load()
    except Exception as error:  # noqa: BLE001 - torch must be importable whatever is wrong with us
        unavailable.install(error)
        _forget_import()
        _report(error)


def _forget_import() -> None:
    """Let a later `import torch_fl` execute the package, and so load the device, instead of finding it imported.

    The submodules stay: the extension cannot be executed twice in a process.
    """
    sys.modules.pop("torch_fl", None)


def _report(error: Exception) -> None:
    if isinstance(error, _EXPLAINED):
        cause = unavailable.describe(error)
    else:
        cause = "".join(traceback.format_exception(error)).rstrip()
    print(
        f"[flagos] torch is imported without the device 'flagos', which could not be loaded:\n  {cause}\n"
        "  `flagos doctor` tells more; TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves flagos out.",
        file=sys.stderr,
    )
