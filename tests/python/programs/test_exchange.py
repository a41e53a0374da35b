"""Exchange with other code: DLPack, the array interface that must be refused, checkpointing, data loading."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, assert_same, sample
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("way", ["object", "capsule"])
def test_dlpack_shares_memory(way: str, dtype: torch.dtype, device: str) -> None:
    x = sample(4, 3, dtype=dtype).to(device)
    source = x[1:].t()
    y = torch.from_dlpack(source if way == "object" else torch.utils.dlpack.to_dlpack(source))
    assert y.device == x.device
    assert y.data_ptr() == source.data_ptr()
    assert_equal(y, sample(4, 3, dtype=dtype)[1:].t(), device)
    y.zero_()
    assert not x[1:].any()


@pytest.mark.needs_flagos
def test_dlpack_names_an_extension_device(device: str, second_device: str) -> None:
    from torch.utils.dlpack import DLDeviceType

    assert torch.ones(1, device=second_device).__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)


def test_dlpack_outlives_its_source(device: str) -> None:
    y = torch.from_dlpack(sample(50).to(device))
    assert_equal(y + 0, sample(50), device)


@pytest.mark.needs_flagos
def test_array_interfaces_are_refused(device: str) -> None:
    import numpy

    x = sample(3).to(device)
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(TypeError, match=r"(?i)cpu"):
        numpy.asarray(x)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_gives_the_same_gradients(reentrant: bool, device: str) -> None:
    def block(x, w):
        return torch.nn.functional.dropout(torch.tanh(x @ w), 0.3)

    x, w = sample(4, 4, requires_grad=True), sample(4, 4, seed=8, requires_grad=True)
    assert_same(lambda x, w: checkpoint(block, x, w, use_reentrant=reentrant), x, w, device=device, backward=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_restores_random_numbers(reentrant: bool, device: str) -> None:
    masks = []

    def block(x):
        mask = torch.bernoulli(torch.full_like(x, 0.5))
        masks.append(mask.detach().cpu())
        return x * mask

    x = torch.ones(200, device=device, requires_grad=True)
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(x.grad.cpu(), masks[0])


@pytest.mark.parametrize("pin", [False, pytest.param(True, marks=pytest.mark.needs_flagos)])
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int, pin: bool, device: str) -> None:
    """Worker processes are forked here, after the device was used: they touch CPU tensors only."""
    torch.ones(1, device=device)
    data = TensorDataset(sample(20, 3), torch.arange(20))
    batches = []
    for x, index in DataLoader(data, batch_size=8, num_workers=workers, pin_memory=pin):
        assert x.is_pinned() is pin
        batches.append((x.to(device, non_blocking=True) * 2, index.to(device)))
    assert_equal(torch.cat([x for x, _ in batches]), sample(20, 3) * 2, device)
    assert torch.equal(torch.cat([index for _, index in batches]).cpu(), torch.arange(20))


def test_threads_share_a_tensor(device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = sample(64, 64).to(device)
    expected = (sample(64, 64) @ sample(64, 64).t()).relu()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: (x @ x.t()).relu(), range(40)))
    assert all(torch.equal(result.cpu(), expected) for result in results)
    assert x.device.type == device


def test_backward_in_threads(device: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def gradient(seed: int) -> torch.Tensor:
        x = sample(8, 8, seed=seed).to(device).requires_grad_()
        (x @ x).exp().sum().backward()
        return x.grad.cpu()

    alone = [gradient(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(gradient, range(8)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.needs_flagos
def test_python_sequences_and_functorch(device: str) -> None:
    x = sample(3, 4)
    assert_same(lambda x: torch.func.vmap(lambda row: row.sum() * row)(x), x, device=device)
    assert_same(lambda x: torch.func.grad(lambda x: (x**3).sum())(x), x, device=device)
    assert_same(lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)), x, device=device)
    assert [float(value) for value in x.to(device)[0]] == x[0].tolist()
