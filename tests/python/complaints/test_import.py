"""Complaint 7, `import torch` broken by a device that loads itself: torch works, and the reason stays readable.

torch-spyre#2925, torch-spyre#3659, pytorch#180712, pytorch#134293
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_flagos

#: What may be wrong with an installation: a module that Python finds before ours, and a word of the reason.
BROKEN = {
    "extension is missing": ("raise ModuleNotFoundError('No module named torch_fl._C')", "_C"),
    "extension of another torch": ("raise ImportError('undefined symbol: _ZN3c10')", "undefined symbol"),
    "extension raises anything": ("raise KeyError('surprise')", "surprise"),
}

FINDER = """
import importlib.abc, importlib.util, sys
class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "torch_fl._C" else None
    def create_module(self, spec): return None
    def exec_module(self, module): exec({body!r})
sys.meta_path.insert(0, Broken())
import torch
here = torch.flagos
print(torch.ones(2).sum().item(), here.is_available(), here.device_count(), torch.accelerator.is_available())
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
try:
    torch.flagos.current_device()
except AttributeError as error:
    print(error)
"""


@pytest.mark.parametrize("name", BROKEN)
def test_torch_survives_and_the_reason_is_kept(name: str, run_python) -> None:
    body, word = BROKEN[name]
    done = run_python(FINDER.format(body=body), CUDA_VISIBLE_DEVICES="").check()
    first, *rest = done.stdout.splitlines()
    assert first == "2.0 False 0 False"
    assert word in "\n".join(rest), rest
    assert "[flagos]" in done.stderr
    assert word in done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"FLAGOS_BACKEND_CONFIG": "/nowhere.conf"},
        pytest.param({"FLAGOS_HOST_DEVICES": "-1"}, marks=pytest.mark.full),
        pytest.param({"FLAGOS_LOG": "everything"}, marks=pytest.mark.full),
    ],
    ids=lambda value: next(iter(value)),
)
def test_training_on_the_cpu_survives_a_broken_setting(environment: dict[str, str], run_python) -> None:
    code = """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        print(torch.accelerator.is_available(), torch.flagos.is_available())
    """
    done = run_python(code, CUDA_VISIBLE_DEVICES="", **environment).check()
    assert done.stdout.strip() == "False False"
    assert next(iter(environment)) in done.stderr or next(iter(environment.values())) in done.stderr


@pytest.mark.full
def test_import_costs_no_context(run_python) -> None:
    code = "import torch; print(torch.flagos.is_initialized())"
    done = run_python(code).check()
    assert (done.stdout.strip(), done.stderr) == ("False", "")
