"""safetensors on flagos: tensors are saved as they are, and `torch.flagos.load_file` reads them to the device."""

from __future__ import annotations

import sys

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    values = {str(dtype): torch.randint(0, 2, (3, 5)).to(dtype) for dtype in DTYPES}
    return values | {"normal": torch.randn(7), "empty": torch.zeros(0, 4), "number": torch.tensor(1.5)}


def assert_equal(loaded: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], device: str) -> None:
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert str(loaded[name].device) == device
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].cpu(), tensor)


@pytest.fixture
def file(safetensors, tmp_path):
    """A file written from flagos tensors."""
    path = tmp_path / "tensors.safetensors"
    safetensors.save_file({name: tensor.to("flagos") for name, tensor in tensors().items()}, path)
    return path


def test_save_file_of_device_tensors(file, safetensors) -> None:
    assert_equal(safetensors.load_file(file), tensors(), "cpu")


@pytest.mark.parametrize(
    ("device", "place"),
    [
        ("flagos", "flagos:0"),
        ("flagos:1", "flagos:1"),
        (1, "flagos:1"),
        (None, "flagos:0"),
        (torch.device("flagos:1"), "flagos:1"),
    ],
    ids=str,
)
def test_load_file(device, place: str, file) -> None:
    assert_equal(torch.flagos.load_file(file, device), tensors(), place)
    assert_equal(torch.flagos.load_file(str(file), device=device), tensors(), place)


def test_load_file_on_the_current_device(file) -> None:
    with torch.flagos.device(1):
        assert_equal(torch.flagos.load_file(file), tensors(), "flagos:1")


def test_load_file_needs_a_flagos_device_and_a_file(file, tmp_path, safetensors) -> None:
    with pytest.raises(ValueError, match="Expected a flagos device, but got: cpu"):
        torch.flagos.load_file(file, "cpu")
    with pytest.raises(RuntimeError, match="device index 9 is out of range"):
        torch.flagos.load_file(file, 9)
    with pytest.raises(FileNotFoundError, match="missing"):
        torch.flagos.load_file(tmp_path / "missing.safetensors")
    (tmp_path / "text.safetensors").write_text("none of these files")
    with pytest.raises(Exception, match="header"):
        torch.flagos.load_file(tmp_path / "text.safetensors")


def test_load_file_without_the_library(file, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        torch.flagos.load_file(file)


def test_an_index_means_the_accelerator(file, safetensors) -> None:
    """The library takes a number for the current accelerator, which is flagos."""
    assert_equal(safetensors.load_file(file, device=1), tensors(), "flagos:1")


def test_the_library_refuses_the_name(file, safetensors) -> None:
    """Why there is `torch.flagos.load_file`. Should this pass one day, mend docs/scripts.md."""
    with pytest.raises(Exception, match="device flagos is invalid"):
        safetensors.load_file(file, device="flagos")


def test_save_model_and_load_model(safetensors, tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    torch.manual_seed(0)
    saved = torch.nn.Linear(3, 4).to("flagos")
    safetensors.save_model(saved, path)
    loaded = torch.nn.Linear(3, 4).to("flagos")
    safetensors.load_model(loaded, path)
    assert loaded.weight.device.type == "flagos"
    assert torch.equal(loaded.weight, saved.weight)
    assert torch.equal(loaded.bias, saved.bias)


def test_the_hint_of_run(run_command, file, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import safetensors.torch, torch\nsafetensors.torch.load_file({str(file)!r}, device='flagos')\n")
    done = run_command([sys.executable, "-m", "torch_fl.cli", "run", str(script)])
    assert done.returncode == 1
    assert "torch.flagos.load_file(path)" in done.stderr
