"""`flagos doctor`: what is installed, loaded and configured here, and where each setting came from."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
from typing import Any

import torch

import torch_fl
from torch_fl import unavailable
from torch_fl.cli.output import FINE, FOUND_SOMETHING, Commands, bytes_text, new_command, print_json, table


def add_command(commands: Commands) -> None:
    """Add `doctor` to the parser."""
    parser = new_command(
        commands,
        "doctor",
        "show versions, devices, backends and the configuration in force, and name what is wrong",
        "flagos doctor --json",
        run,
        works_without_device=True,
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 1 if it names a problem."""
    report = examine()
    if arguments.json:
        print_json(report)
    else:
        _print(report)
    return FOUND_SOMETHING if report["problems"] else FINE


def examine() -> dict[str, Any]:
    """Return the report, ready for JSON; its list `problems` is empty when all is well."""
    report: dict[str, Any] = {
        "versions": {
            "torch_fl": torch_fl.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "package": os.path.dirname(os.path.abspath(torch_fl.__file__)),
        "autoload": _autoload_state(),
        "loaded": torch_fl.load_error is None,
        "problems": [],
    }
    if torch_fl.load_error is not None:
        report["problems"].append(f"the device is not loaded: {unavailable.describe(torch_fl.load_error)}")
        # No extension, or a wrong value: then the problem above is that one.
        with contextlib.suppress(ImportError, RuntimeError, ValueError):
            from torch_fl import _C

            report["settings"] = _C.settings()
        return report

    from torch_fl import _C, flagos

    report["accelerator"] = _C.accelerator_name()
    report["devices"] = [_device(index) for index in range(flagos.device_count())]
    report["backends"] = flagos.backends()
    report["config_files"] = _C.config_files()
    report["settings"] = _C.settings()
    report["libraries"] = _libraries()
    if not report["devices"]:
        report["problems"].append(f"the accelerator {report['accelerator']!r} has no device")
    return report


# Libraries that choose among devices by name, and how they come to flagos (docs/scripts.md).
_LIBRARIES = {
    "transformers": 'from_pretrained(…, device_map="flagos"), or .to("flagos"); Trainer: see accelerate',
    "accelerate": "takes the CPU unless torch.flagos.use_in_accelerate() is called first",
    "safetensors": 'refuses the name "flagos" in load_file; torch.flagos.load_file(path) reads its files',
}


def _libraries() -> list[dict[str, str]]:
    """Return the installed ones of these libraries, with version and what their users should know."""
    rows = []
    for name, advice in _LIBRARIES.items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            rows.append({"name": name, "version": importlib.metadata.version(name), "advice": advice})
    return rows


def _device(index: int) -> dict[str, Any]:
    from torch_fl import flagos

    properties = flagos.get_device_properties(index)
    free, total = flagos.mem_get_info(index)
    return {
        "index": index,
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "multi_processor_count": properties.multi_processor_count,
        "memory_free": free,
        "memory_total": total,
    }


def _autoload_state() -> str:
    """Return what `import torch` alone does in this environment, in words."""
    from importlib.metadata import entry_points

    from torch_fl import _autoload

    if not any(point.value.startswith("torch_fl.") for point in entry_points(group="torch.backends")):
        return "off: this torch_fl is not installed, so it has no entry point; `import torch_fl` loads the device"
    if not torch._is_device_backend_autoload_enabled():
        return "off: TORCH_DEVICE_BACKEND_AUTOLOAD is set to something other than 1; `import torch_fl` loads the device"
    reason = _autoload.reason_to_stay_out()
    return f"off: {reason}" if reason is not None else "on: `import torch` is enough"


def _print(report: dict[str, Any]) -> None:
    for name, version in report["versions"].items():
        print(f"{name:<12} {version}")
    print(f"{'package':<12} {report['package']}")
    print(f"{'autoload':<12} {report['autoload']}")
    if report["loaded"]:
        print(f"{'accelerator':<12} {report['accelerator']}")
        for device in report["devices"]:
            memory = f"{bytes_text(device['memory_free'])} free of {bytes_text(device['memory_total'])}"
            name = f"flagos:{device['index']}"
            print(f"{name:<12} {device['name']}, {device['multi_processor_count']} processors, {memory}")
        print("\nBackends")
        rows = [
            [backend["name"], str(backend["overloads"]), "yes" if backend["available"] else f"no: {backend['why']}"]
            for backend in report["backends"]
        ]
        print(table(["backend", "overloads", "available"], rows, right=[1]))
        print("\nRouting files, in the order they were read")
        for path in report["config_files"]:
            print(f"  {path}")
    if report.get("libraries"):
        print("\nLibraries that know devices by name (docs/scripts.md explains)")
        cells = [[row["name"], row["version"], row["advice"]] for row in report["libraries"]]
        print(table(["library", "version", "on flagos"], cells))
    if "settings" in report:
        print("\nSettings (docs/environment.md explains them)")
        rows = [[setting["name"], str(setting["value"]), setting["origin"]] for setting in report["settings"]]
        print(table(["variable", "value", "from"], rows))
    if report["problems"]:
        sys.stdout.flush()
        for problem in report["problems"]:
            print(f"\nproblem: {problem}", file=sys.stderr)
    else:
        print("\nNo problem found.")
