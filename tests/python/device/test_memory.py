"""Memory: counters, peaks, limits, resizing, storages, pinned memory, and nothing left behind."""

from __future__ import annotations

import gc

import pytest
import torch
from parity import assert_equal, assert_same, sample

flagos_only = pytest.mark.needs_flagos
MEGABYTE = 2**20


@flagos_only
def test_allocated_follows_tensors(device: str) -> None:
    gc.collect()
    start = torch.flagos.memory_allocated()
    x = torch.empty(MEGABYTE, dtype=torch.uint8, device=device)
    assert torch.flagos.memory_allocated() >= start + MEGABYTE
    view = x[10:]
    del x
    assert torch.flagos.memory_allocated() >= start + MEGABYTE
    del view
    assert torch.flagos.memory_allocated() == start


@flagos_only
def test_peak_and_its_reset(device: str) -> None:
    torch.flagos.reset_peak_memory_stats()
    start = torch.flagos.memory_allocated()
    x = torch.empty(4 * MEGABYTE, dtype=torch.uint8, device=device)
    del x
    assert torch.flagos.max_memory_allocated() >= start + 4 * MEGABYTE
    torch.flagos.reset_peak_memory_stats()
    assert torch.flagos.max_memory_allocated() == torch.flagos.memory_allocated() == start


@flagos_only
def test_resetting_counters_does_not_break_later_frees(device: str) -> None:
    x = torch.empty(MEGABYTE, dtype=torch.uint8, device=device)
    before = torch.flagos.memory_allocated()
    torch.flagos.reset_peak_memory_stats()
    torch.flagos.reset_accumulated_memory_stats()
    del x
    assert torch.flagos.memory_allocated() == before - MEGABYTE


@flagos_only
def test_statistics_have_the_keys_of_cuda(device: str) -> None:
    kept = torch.ones(3, device=device)
    stats = torch.flagos.memory_stats()
    for counter in ("allocated_bytes", "reserved_bytes", "active_bytes", "allocation"):
        for field in ("current", "peak", "allocated", "freed"):
            assert f"{counter}.all.{field}" in stats, counter
    assert stats["allocated_bytes.all.current"] == torch.flagos.memory_allocated() > 0
    more = torch.ones(5, device=device)
    later = torch.flagos.memory_stats()
    assert later["allocated_bytes.all.allocated"] - stats["allocated_bytes.all.allocated"] >= more.nbytes
    for counter in ("allocated_bytes", "allocation"):
        grown = {field: later[f"{counter}.all.{field}"] - stats[f"{counter}.all.{field}"]
                 for field in ("current", "allocated", "freed")}  # fmt: skip
        assert grown["allocated"] - grown["freed"] == grown["current"] > 0, counter
    assert {"num_ooms", "num_alloc_retries"} <= stats.keys()
    assert kept.sum() == 3


@flagos_only
def test_counters_are_kept_by_device(device: str, second_device: str) -> None:
    before = torch.flagos.memory_allocated(0), torch.flagos.memory_allocated(1)
    x = torch.empty(MEGABYTE, dtype=torch.uint8, device=second_device)
    assert torch.flagos.memory_allocated(0) == before[0]
    assert torch.flagos.memory_allocated(second_device) >= before[1] + MEGABYTE
    assert x.device.index == 1


@flagos_only
def test_free_and_total(device: str) -> None:
    free, total = torch.flagos.mem_get_info()
    assert 0 < free <= total
    assert torch.flagos.get_device_properties(0).total_memory == total


@flagos_only
def test_accelerator_memory_functions(device: str) -> None:
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    x = torch.ones(MEGABYTE, device=device)
    assert torch.accelerator.memory_allocated() == torch.flagos.memory_allocated() > 0
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() >= 0
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    assert torch.accelerator.get_memory_info() == torch.flagos.mem_get_info()
    del x


def _refused(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.mm(x, x)


WORK = {
    "arithmetic": lambda d: (torch.ones(1000, device=d) * 2 + 1).sum().item(),
    "reshaping": lambda d: torch.ones(10, 10, device=d).t().contiguous().view(-1)[::2].clone(),
    "out": lambda d: torch.add(torch.ones(9, device=d), 1, out=torch.empty(0, device=d)),
    "error": lambda d: _refused(torch.ones(2, 3, device=d)),
    "copies": lambda d: torch.ones(9).to(d).double().cpu(),
    "sort": lambda d: torch.rand(100, device=d).sort(),
    "backward": lambda d: (
        (torch.ones(5, 5, device=d, requires_grad=True) @ torch.ones(5, 5, device=d)).sum().backward()
    ),
    "resize": lambda d: torch.ones(4, device=d).resize_(1000),
    "storage": lambda d: torch.ones(4, device=d).untyped_storage().resize_(0),
    "module": lambda d: torch.nn.LSTM(3, 4).to(d)(torch.ones(2, 2, 3, device=d))[0].sum().backward(),
    "indexing": lambda d: torch.ones(9, device=d)[torch.tensor([1, 2])].nonzero(),
    "foreach": lambda d: torch._foreach_add_([torch.ones(3, device=d) for _ in range(9)], 1),
}


@flagos_only
@pytest.mark.parametrize("name", WORK)
def test_nothing_is_left_behind(name: str, device: str) -> None:
    WORK[name](device)  # what is made once and kept, such as caches, is not a leak
    gc.collect()
    start = torch.flagos.memory_allocated()
    for _ in range(3):
        WORK[name](device)
    gc.collect()
    assert torch.flagos.memory_allocated() == start


@flagos_only
def test_limit_raises_with_numbers(run_python) -> None:
    code = """
        import torch
        kept = torch.empty(6 * 2**20, dtype=torch.uint8, device="flagos")
        for action in (
            lambda: torch.empty(6 * 2**20, dtype=torch.uint8, device="flagos"),
            lambda: kept.to(torch.float32),
            lambda: kept.repeat(2),
            lambda: torch.ones(1, device="flagos").resize_(4 * 2**20),
        ):
            try:
                action()
            except torch.OutOfMemoryError as error:
                print(str(error).replace("\\n", " "))
            else:
                raise SystemExit("no error")
        small = torch.ones(2**20, dtype=torch.uint8, device="flagos")
        del kept
        again = torch.empty(6 * 2**20, dtype=torch.uint8, device="flagos")
        print(torch.flagos.mem_get_info())
        assert torch.flagos.memory_stats()["num_ooms"] >= 1
    """
    lines = run_python(code, FLAGOS_HOST_MEMORY="10M").check().stdout.splitlines()
    assert len(lines) == 5
    for line in lines[:4]:
        assert "flagos" in line
        assert "MiB" in line or "bytes" in line
    assert "6.00 MiB" in lines[0] or str(6 * MEGABYTE) in lines[0]
    assert "10.00 MiB" in lines[0] or str(10 * MEGABYTE) in lines[0]
    assert lines[4] == f"({3 * MEGABYTE}, {10 * MEGABYTE})"


@flagos_only
def test_limit_set_while_running(device: str, extension) -> None:
    used = torch.flagos.memory_allocated()
    extension.set_memory_limit(0, used + MEGABYTE)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 * MEGABYTE, dtype=torch.uint8, device=device)
        torch.empty(MEGABYTE // 2, dtype=torch.uint8, device=device)
    finally:
        extension.set_memory_limit(0, 0)
    torch.empty(2 * MEGABYTE, dtype=torch.uint8, device=device)


@pytest.mark.parametrize("size", [(2,), (6,), (3, 4), (0,), (50,)], ids=str)
def test_resize(size: tuple[int, ...], device: str) -> None:
    def compute(x):
        view = x[:2]
        result = x.resize_(size)
        kept = min(result.numel(), 6)
        x.view(-1)[6:].zero_()  # what resize_ adds is uninitialised
        return result is x, x.flatten()[:kept].clone(), tuple(x.shape), view.clone()

    assert_same(compute, sample(6), device=device)


def test_resize_as_and_memory_format(device: str) -> None:
    x = sample(1).to(device)
    x.resize_as_(torch.empty(2, 3, 4, 5, device=device))
    assert x.shape == (2, 3, 4, 5)
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_resize_of_a_view_grows_the_storage(device: str) -> None:
    x = sample(4).to(device)
    view = x[2:]
    view.resize_(10)
    assert view.untyped_storage().nbytes() >= 12 * 4
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert torch.equal(x.cpu(), sample(4))
    assert torch.equal(view[:2].cpu(), sample(4)[2:])


def test_storage_freed_and_allocated_again(device: str) -> None:
    """What fully sharded training does to its parameters."""
    x = sample(100).to(device)
    storage = x.untyped_storage()
    nbytes = storage.nbytes()
    before = torch.flagos.memory_allocated() if device == "flagos" else None
    storage.resize_(0)
    assert storage.nbytes() == 0
    assert x.shape == (100,)
    if before is not None:
        assert torch.flagos.memory_allocated() <= before - nbytes
    storage.resize_(nbytes)
    x.copy_(sample(100, seed=8))
    assert_equal(x, sample(100, seed=8), device)


def test_set(device: str) -> None:
    x, y = sample(6).to(device), sample(2, 3, seed=8).to(device)
    z = torch.empty(0, device=device).set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert_equal(z, sample(6)[2:].view(2, 2), device)
    x.set_(y)
    assert x.data_ptr() == y.data_ptr()
    assert x.shape == (2, 3)
    x.set_()
    assert x.numel() == 0
    assert torch.empty(0, device=device).set_(y.untyped_storage()).numel() == 6


def test_set_out_of_bounds_grows_or_raises_as_on_the_cpu(device: str) -> None:
    def compute(x):
        return torch.empty(0, device=x.device).set_(x.untyped_storage(), 0, (4,), (1,)), x.untyped_storage().nbytes()

    assert_same(compute, sample(4), device=device)
    with pytest.raises(RuntimeError):
        sample(4).to(device).as_strided((100,), (1,))


def test_storage_methods(device: str) -> None:
    x = sample(4).to(device)
    storage = x.untyped_storage()
    assert storage.device.type == device
    assert storage.nbytes() == 16
    assert bytes(storage.cpu()) == bytes(sample(4).untyped_storage())
    copy = storage.clone()
    assert copy.data_ptr() != storage.data_ptr()
    assert copy.device.type == device
    storage.copy_(sample(4, seed=8).untyped_storage())
    assert_equal(x, sample(4, seed=8), device)
    assert storage.resizable()
    storage.fill_(0)
    assert x.sum().item() == 0


@flagos_only
def test_record_stream(device: str) -> None:
    stream = torch.flagos.Stream()
    x = sample(100).to(device)
    with torch.flagos.stream(stream):
        y = x * 2
        x.record_stream(stream)
    del x
    torch.flagos.current_stream().wait_stream(stream)
    assert torch.equal(y.cpu(), sample(100) * 2)


@flagos_only
def test_pinned_memory(device: str) -> None:
    x = sample(100)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned[3:].is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, x)
    assert pinned.pin_memory() is pinned
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.equal(pinned.to(device, non_blocking=True).cpu(), x)
    assert torch.zeros(3, device=device).to("cpu").is_pinned() is False
    with pytest.raises(RuntimeError, match=r"(?i)pin"):
        torch.empty(3, device=device).pin_memory()
    with pytest.raises(RuntimeError, match=r"(?i)pin"):
        torch.empty(3, device=device, pin_memory=True)


@flagos_only
def test_empty_cache_and_summary(device: str) -> None:
    torch.flagos.empty_cache()
    assert torch.flagos.memory_reserved() >= torch.flagos.memory_allocated()
    assert torch.flagos.max_memory_reserved() >= torch.flagos.memory_reserved()
