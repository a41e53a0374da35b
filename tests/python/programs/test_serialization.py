"""Saving and loading: both ways, with map_location and weights_only, with shared storages and generators."""

from __future__ import annotations

import io
import pickle

import pytest
import torch
from parity import assert_equal, sample


def saved(value: object) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("target", [None, "cpu", "device", "torch.device", "function", "dictionary"])
def test_from_the_device(target: str | None, weights_only: bool, device: str) -> None:
    location = {
        None: None,
        "cpu": "cpu",
        "device": device,
        "torch.device": torch.device(device),
        "function": lambda storage, tag: storage,
        "dictionary": {f"{device}:0": "cpu"},
    }[target]
    loaded = torch.load(saved({"x": sample(3, 4).to(device)}), map_location=location, weights_only=weights_only)
    place = "cpu" if target in ("cpu", "function", "dictionary") else device
    assert_equal(loaded["x"], sample(3, 4), place)


@pytest.mark.parametrize("weights_only", [True, False])
def test_from_the_cpu_to_the_device(weights_only: bool, device: str) -> None:
    loaded = torch.load(saved([sample(3), sample(2, dtype=torch.bool)]), map_location=device, weights_only=weights_only)
    assert_equal(loaded, [sample(3), sample(2, dtype=torch.bool)], device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.complex64, torch.uint8], ids=str)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    assert_equal(torch.load(saved(sample(5, dtype=dtype).to(device))), sample(5, dtype=dtype), device)


def test_views_share_their_storage_again(device: str) -> None:
    x = sample(4, 6).to(device)
    whole, part = torch.load(saved([x, x.t()[1:]]))
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    assert_equal([whole, part], [sample(4, 6), sample(4, 6).t()[1:]], device)


def test_conjugate_view(device: str) -> None:
    x = sample(3, dtype=torch.complex64)
    assert torch.equal(torch.load(saved(x.to(device).conj()), map_location="cpu"), x.conj())


@pytest.mark.needs_flagos
def test_index_is_kept(second_device: str) -> None:
    x = sample(3).to(second_device)
    assert torch.load(saved(x)).device == torch.device(second_device)
    assert torch.load(saved(x), map_location="flagos:0").device.index == 0


@pytest.mark.needs_flagos
def test_index_that_does_not_exist_is_an_error(run_python, tmp_path) -> None:
    path = tmp_path / "x.pt"
    run_python(
        f"import torch; torch.save(torch.ones(2, device='flagos:1'), {str(path)!r})", FLAGOS_HOST_DEVICES="2"
    ).check()
    done = run_python(f"import torch; torch.load({str(path)!r})")
    assert done.returncode != 0
    assert "flagos" in done.stderr
    assert "map_location" in done.stderr
    run_python(f"import torch; torch.load({str(path)!r}, map_location='flagos')").check()


@pytest.mark.needs_flagos
def test_loading_without_the_device(run_python, tmp_path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": sample(3).to("flagos")}, path)
    code = f"import torch; print(torch.load({str(path)!r}, map_location='cpu')['w'].device)"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").check().stdout.strip() == "cpu"


def test_model_and_optimizer(device: str) -> None:
    model = torch.nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(sample(4, 3).to(device)).sum().backward()
    optimizer.step()
    loaded = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}), map_location="cpu")
    restored = torch.nn.Linear(3, 2)
    restored.load_state_dict(loaded["model"])
    assert torch.equal(restored.weight, model.weight.cpu())
    again = torch.optim.Adam(restored.to(device).parameters())
    again.load_state_dict(loaded["optimizer"])
    assert again.state[restored.weight]["exp_avg"].device.type == device


def test_pickle_of_tensors_and_modules(device: str) -> None:
    assert_equal(pickle.loads(pickle.dumps(sample(3).to(device))), sample(3), device)
    model = pickle.loads(pickle.dumps(torch.nn.Linear(2, 2).to(device)))
    assert model.weight.device.type == device


def test_memory_mapped_file(device: str, tmp_path) -> None:
    torch.save(sample(100), tmp_path / "x.pt")
    assert_equal(torch.load(tmp_path / "x.pt", mmap=True).to(device), sample(100), device)


def test_legacy_format(device: str) -> None:
    buffer = io.BytesIO()
    torch.save(sample(3).to(device), buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    assert_equal(torch.load(buffer), sample(3), device)
