"""Loading: with torch, before torch, after torch, switched off, without numpy, and with a broken configuration."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_flagos

USE = "print(torch.ones(2, device='flagos').sum().item(), torch.flagos.is_available())"
ORDERS = {
    "torch alone": f"import torch\n{USE}",
    "torch first": f"import torch, torch_fl\n{USE}",
    "torch_fl first": f"import torch_fl, torch\n{USE}",
    "twice": f"import importlib, torch, torch_fl\nimportlib.import_module('torch_fl')\n{USE}",
    "in a thread": f"""
import threading
thread = threading.Thread(target=lambda: __import__("torch"))
thread.start()
thread.join()
import torch
{USE}
""",
}


@pytest.mark.parametrize("name", ORDERS)
def test_import_order(name: str, run_python) -> None:
    done = run_python(ORDERS[name]).check()
    assert done.stdout.split() == ["2.0", "True"]
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr, done.stderr


def test_autoload_can_be_switched_off(run_python) -> None:
    code = """
        import torch
        assert not hasattr(torch, "flagos")
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        import torch_fl
        print(torch.ones(2, device="flagos").sum().item())
    """
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").check().stdout.strip() == "2.0"


def test_importing_torch_fl_leaves_the_switch_as_it_was(run_python) -> None:
    code = "import os, torch_fl; print(os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD'))"
    assert run_python(code).check().stdout.strip() == "None"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").check().stdout.strip() == "0"


def test_works_without_numpy(run_python) -> None:
    code = """
        import sys
        sys.modules["numpy"] = None
        import warnings
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        import torch
        x = torch.randn(4, 4, device="flagos", requires_grad=True)
        (x @ x).sum().backward()
        repr(x)
        print(x.grad.device, x.grad.tolist() is not None)
    """
    assert run_python(code).check().stdout.split() == ["flagos:0", "True"]


def test_needs_nothing_but_torch(run_python) -> None:
    code = """
        import sys, importlib.metadata
        import torch
        torch.ones(1, device="flagos")
        from torch_fl import _C
        imported = {name.partition(".")[0] for name in sys.modules}
        ours = imported & {"sklearn", "scipy", "pytest", "pybind11", "triton"}
        print(sorted(ours))
    """
    assert run_python(code).check().stdout.strip() == "[]"


BROKEN = {
    "file does not exist": {"FLAGOS_BACKEND_CONFIG": "/nowhere/at/all.conf"},
    "unknown overload": {"FLAGOS_OP_no_such_operator": "none"},
    "unknown backend": {"FLAGOS_OP_abs": "no_such_backend"},
    "bad number": {"FLAGOS_HOST_DEVICES": "many"},
    "bad size": {"FLAGOS_HOST_MEMORY": "12 parsecs"},
    "unknown accelerator": {"FLAGOS_ACCELERATOR": "abacus"},
    "unknown log flag": {"FLAGOS_LOG": "dispatch,everything"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_setting_never_breaks_torch(name: str, run_python) -> None:
    """torch stays usable, and the cause is on stderr with the setting's value."""
    environment = BROKEN[name]
    ((variable, value),) = environment.items()
    done = run_python("import torch; print(torch.ones(2).sum().item())", **environment).check()
    assert done.stdout.strip() == "2.0"
    assert variable in done.stderr or value in done.stderr, done.stderr
    assert value in done.stderr or variable.removeprefix("FLAGOS_OP_") in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["unknown overload", "bad number"])
def test_using_the_device_after_a_failed_load_names_the_cause(name: str, run_python) -> None:
    ((variable, value),) = BROKEN[name].items()
    done = run_python("import torch; torch.ones(2, device='flagos')", **BROKEN[name])
    assert done.returncode != 0
    assert variable in done.stderr or value in done.stderr


def test_broken_setting_is_an_error_of_the_explicit_import(run_python) -> None:
    done = run_python("import torch_fl", FLAGOS_OP_abs="no_such_backend")
    assert done.returncode != 0
    assert "no_such_backend" in done.stderr


def test_unknown_setting_warns_with_the_nearest_name(run_python) -> None:
    done = run_python("import torch; print(torch.flagos.device_count())", FLAGOS_HOST_DEVICE="3").check()
    assert done.stdout.strip() == "1"
    assert "FLAGOS_HOST_DEVICE" in done.stderr
    assert "FLAGOS_HOST_DEVICES" in done.stderr


def test_number_of_devices(run_python) -> None:
    code = "import torch; print(torch.flagos.device_count(), torch.accelerator.device_count())"
    assert run_python(code).check().stdout.split() == ["1", "1"]
    assert run_python(code, FLAGOS_HOST_DEVICES="5").check().stdout.split() == ["5", "5"]


def test_second_backend_of_the_same_kind_is_refused_clearly(run_python) -> None:
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_fl
    """
    done = run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode != 0
    assert "other" in done.stderr
    assert "flagos" in done.stderr
