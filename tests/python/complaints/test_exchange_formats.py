"""Complaint 15, serialization, DLPack and names: values cross between devices and libraries, or a text says why not.

pytorch#165455, pytorch#144845
"""

from __future__ import annotations

import copy
import io
import pickle

import numpy
import pytest
import torch
from parity import assert_equal, sample

pytestmark = pytest.mark.needs_flagos


def through_file(value: object, **options: object) -> object:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "save"])
@pytest.mark.parametrize("place", ["cpu", "flagos"])
def test_generators_are_copied_with_their_state(place: str, way: str) -> None:
    generator = torch.Generator(place).manual_seed(3)
    torch.rand(5, generator=generator, device=place)
    other = {
        "pickle": lambda g: pickle.loads(pickle.dumps(g)),
        "deepcopy": copy.deepcopy,
        "save": lambda g: through_file(g, weights_only=False),
    }[way](generator)
    assert other.device == generator.device
    assert torch.equal(*(torch.rand(5, generator=g, device=place) for g in (generator, other)))


def test_offset_of_a_generator_that_has_none(device: str) -> None:
    generator = torch.Generator(device)
    assert generator.get_offset() == 0
    generator.set_offset(0)
    with pytest.raises(RuntimeError, match=device):
        generator.set_offset(4)


@pytest.mark.parametrize("weights_only", [True, False])
def test_state_of_a_training_run_in_both_directions(weights_only: bool, device: str) -> None:
    def state_on(place: str) -> dict:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to(place)
        optimizer = torch.optim.Adam(model.parameters())
        model(sample(4, 3).to(place)).sum().backward()
        optimizer.step()
        return {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()["state"][0]["exp_avg"]}

    assert_equal(through_file(state_on("cpu"), map_location=device, weights_only=weights_only), state_on("cpu"), device)
    assert_equal(through_file(state_on(device), map_location="cpu", weights_only=weights_only), state_on("cpu"), "cpu")


def test_file_says_the_devices_name(device: str) -> None:
    buffer = io.BytesIO()
    torch.save(sample(3).to(device), buffer)
    assert b"flagos:0" in buffer.getvalue()
    assert b"privateuse" not in buffer.getvalue()


NUMPY = {
    "from_numpy": lambda a: torch.from_numpy(a).to("flagos"),
    "as_tensor": lambda a: torch.as_tensor(a, device="flagos"),
    "tensor": lambda a: torch.tensor(a, device="flagos"),
    "asarray": lambda a: torch.asarray(a, device="flagos"),
    "from_dlpack": lambda a: torch.from_dlpack(a).to("flagos"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_from_numpy_and_back(name: str) -> None:
    array = sample(3, 4).numpy()
    tensor = NUMPY[name](array)
    assert tensor.device.type == "flagos"
    assert numpy.array_equal(tensor.cpu().numpy(), array)
    assert numpy.array_equal(tensor.numpy(force=True), array)
    tensor.zero_()
    assert array.any()
    assert torch.equal((tensor + 1) * numpy.float32(2), torch.full((3, 4), 2.0, device="flagos"))


@pytest.mark.parametrize("take", [numpy.asarray, numpy.array, lambda x: x.numpy(), lambda x: x.__array__()])
def test_numpy_says_what_to_call(take) -> None:
    with pytest.raises(TypeError, match=r"flagos.*cpu\(\)"):
        take(sample(3).to("flagos"))


DLPACK = {
    "view": lambda x: x.t()[1:],
    "expanded": lambda x: x[:1].expand(5, 4),
    "empty": lambda x: x[:0],
    "one number": lambda x: x[0, 0],
    "complex": lambda x: torch.complex(x, x),
    "bool": lambda x: x > 0,
}


@pytest.mark.parametrize("name", DLPACK)
def test_dlpack_keeps_strides_and_memory(name: str, device: str) -> None:
    source = DLPACK[name](sample(3, 4).to(device))
    other = torch.from_dlpack(source)
    assert (other.stride(), other.dtype, other.device) == (source.stride(), source.dtype, source.device)
    assert other.data_ptr() == source.data_ptr()
    assert_equal(other, DLPACK[name](sample(3, 4)), device)


def test_dlpack_to_the_cpu_and_refusals(device: str) -> None:
    x = sample(3).to(device)
    assert torch.equal(torch.from_dlpack(x, device="cpu"), sample(3))
    with pytest.raises(BufferError, match="gradient"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="conjugate"):
        x.to(torch.complex64).conj().__dlpack__()
