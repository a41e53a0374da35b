"""`torch.flagos` and `torch.accelerator`: what programs use of torch.cuda is there and says the truth."""

from __future__ import annotations

import os

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

NAMES = [
    "is_available",
    "is_initialized",
    "init",
    "device_count",
    "current_device",
    "set_device",
    "device",
    "device_of",
    "synchronize",
    "get_device_properties",
    "get_device_name",
    "get_device_capability",
    "mem_get_info",
    "empty_cache",
    "memory_stats",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "Stream",
    "Event",
    "stream",
    "current_stream",
    "default_stream",
    "set_stream",
    "default_generators",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "initial_seed",
    "get_rng_state",
    "set_rng_state",
    "get_rng_state_all",
    "set_rng_state_all",
    "get_amp_supported_dtype",
    "is_bf16_supported",
    "route_stats",
    "_lazy_init",
    "_is_in_bad_fork",
]


@pytest.mark.parametrize("name", NAMES)
def test_name_is_there(name: str) -> None:
    assert hasattr(torch.flagos, name)


def test_functions_have_docstrings() -> None:
    bare = [name for name in NAMES if callable(getattr(torch.flagos, name)) and not getattr(torch.flagos, name).__doc__]
    assert not [name for name in bare if not name.startswith("_")]


def test_only_what_is_public_is_listed() -> None:
    assert dir(torch.flagos) == sorted(torch.flagos.__all__)
    assert not {"annotations", "torch"} & set(vars(torch.flagos))


def test_properties() -> None:
    properties = torch.flagos.get_device_properties(0)
    assert properties.name == torch.flagos.get_device_name(0) != ""
    assert (properties.major, properties.minor) == torch.flagos.get_device_capability(0)
    assert properties.total_memory > 2**20
    assert 1 <= properties.multi_processor_count <= (os.cpu_count() or 1)
    assert torch.flagos.get_device_properties("flagos:1").total_memory > 0


def test_accelerator() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("flagos")
    assert torch.accelerator.device_count() == torch.flagos.device_count() == int(os.environ["FLAGOS_HOST_DEVICES"])
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(1)
    assert torch.flagos.current_device() == 1
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(1):
        assert torch.flagos.current_device() == 1
    assert torch.flagos.current_device() == 0


def test_accelerator_streams() -> None:
    stream = torch.Stream("flagos")
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    torch.accelerator.set_stream(torch.flagos.default_stream())


def test_device_strings() -> None:
    assert torch.device("flagos").type == "flagos"
    assert torch.device("flagos:1").index == 1
    assert torch.device("flagos", 1) == torch.device("flagos:1")
    assert str(torch.ones(1, device="flagos").device) == "flagos:0"
    assert torch.ones(1, device=1).device == torch.device("flagos:1")
    assert torch.ones(1, device="flagos").get_device() == 0


def test_initialisation_is_lazy(run_python) -> None:
    code = """
        import torch
        states = [torch.flagos.is_initialized()]
        torch.flagos.device_count(), torch.flagos.is_available(), torch.manual_seed(3)
        states.append(torch.flagos.is_initialized())
        torch.ones(1, device="flagos")
        states.append(torch.flagos.is_initialized())
        print(*states, torch.flagos.initial_seed())
    """
    assert run_python(code).check().stdout.split() == ["False", "False", "True", "3"]


def test_meta_fake_and_deferred_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(3, 4, device="flagos")
        y = (x @ x.t()).relu() + 1
        assert y.device == torch.device("flagos:0")
        assert y.shape == (3, 3)
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    model.to_empty(device="flagos")
    assert model.weight.device == torch.device("flagos:0")


def test_anomaly_mode_and_hooks() -> None:
    x = torch.ones(3, device="flagos", requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.device.type))
    with torch.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    assert seen == ["flagos"]
    with torch.autograd.graph.save_on_cpu():
        (x * x).sum().backward()
    assert x.grad.device.type == "flagos"


def test_dispatch_mode_sees_no_tensor_of_another_device() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            seen.update(t.device.type for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor))
            return result

    x = torch.ones(4, 4, device="flagos", requires_grad=True)
    with Watch():
        torch.nn.functional.layer_norm(x @ x, (4,)).relu().sum().backward()
    assert seen == {"flagos"}


def test_inference_and_no_grad() -> None:
    with torch.inference_mode():
        x = torch.ones(3, device="flagos")
        y = x * 2
        assert x.is_inference()
        assert y.is_inference()
        y.add_(1)
    assert y.tolist() == [3.0, 3.0, 3.0]
