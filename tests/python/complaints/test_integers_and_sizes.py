"""Complaint 4, int64 and large tensors: no value passes through 32 bits or a float, no index overflows.

pytorch#189965 (32-bit index overflow), torch-spyre#4317, torch-spyre#3180 (int64 cast down, or on the CPU every call)
"""

from __future__ import annotations

import gc

import pytest
import torch
from parity import assert_same

#: Values that a float64, a float32 or an int32 in between would change.
EXTREMES = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1, 2**24 + 1, 1, 0, -1]

OPERATORS = {
    "arithmetic": lambda x: (x + 1, x - x.flip(0), x * x, -x, x.abs(), x**3),
    "division": lambda x: (
        torch.div(x, 3, rounding_mode="floor"),
        torch.div(x, 7, rounding_mode="trunc"),
        x % 10,
        x / 3,
    ),
    "bits": lambda x: (x & 255, x | 1, x ^ x.flip(0), ~x, x >> 3, x << 3),
    "comparison": lambda x: (x > 2**53, x == 2**53 + 1, x.eq(x.flip(0)), torch.maximum(x, x.flip(0))),
    "reductions": lambda x: (x.sum(), x.prod(), x.max(), x.min(), x.argmax(), x.aminmax(), x.any(), x.count_nonzero()),
    "scans": lambda x: (x.cumsum(0), x.cumprod(0), x.cummax(0)),
    "order": lambda x: (
        x.sort(),
        x.topk(3),
        x.unique(),
        x.argsort(descending=True),
        torch.searchsorted(x.sort()[0], x),
    ),
    "selection": lambda x: (x[torch.tensor([2, -1], device=x.device)], x.where(x > 0, -1), x.masked_fill(x < 0, 2**62)),
    "limits": lambda x: (x.clamp(-(2**62), 2**62), x.clone().fill_(2**63 - 1), torch.full_like(x, -(2**63))),
    "joins": lambda x: (torch.cat([x, x]), torch.stack([x, x]), x.repeat(2), x.repeat_interleave(2)),
    "products": lambda x: (x[:, None] @ x[None], torch.dot(x, x), torch.outer(x, x)),
    "theory": lambda x: (torch.gcd(x, x.flip(0)), torch.lcm(x[5:7], x[6:8])),
    "casts": lambda x: (x.double(), x.float(), x.int(), x.short(), x.bool(), x.double().long()[4:]),
    "ranges": lambda x: torch.arange(2**53, 2**53 + 5, device=x.device),
    "random": lambda x: torch.randint(2**40, 2**62, (50,), device=x.device),
    "scatter": lambda x: torch.zeros(3, dtype=x.dtype, device=x.device).scatter_add_(0, (x % 3), x),
    "foreach": lambda x: torch._foreach_add([x, x], 2**53 + 1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_int64_keeps_every_bit(name: str, device: str) -> None:
    assert_same(OPERATORS[name], torch.tensor(EXTREMES), device=device)


def test_values_arrive_and_leave_exactly(device: str) -> None:
    x = torch.tensor(EXTREMES, device=device)
    assert x.tolist() == EXTREMES
    assert [x[i].item() for i in range(len(EXTREMES))] == EXTREMES
    assert (x + 0).cpu().tolist() == EXTREMES
    y = torch.zeros(len(EXTREMES), dtype=torch.int64, device=device)
    for i, value in enumerate(EXTREMES):
        y[i] = value
    assert y.tolist() == EXTREMES


@pytest.mark.needs_flagos
def test_int64_stays_on_the_device(device: str, extension) -> None:
    for name, compute in OPERATORS.items():
        extension.reset_route_stats()
        compute(torch.tensor(EXTREMES, device=device))
        # What the CPU composes is composed here; nothing may be copied away for being int64.
        trips = [row["overload"] for row in torch.flagos.route_stats() if torch.flagos.routing.is_trip_to_cpu(row)]
        assert not trips, (name, trips)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers(dtype: torch.dtype, device: str) -> None:
    top = torch.iinfo(dtype).max
    x = torch.tensor([0, 1, top - 1, top], dtype=dtype)
    assert_same(lambda x: (x.clone(), x.to(torch.float64), x == x[:1], torch.cat([x, x]), x[1:]), x, device=device)
    assert x.to(device).tolist() == [0, 1, top - 1, top]


#: One more than an int32 can count.
COUNT = 2**31 + 5


@pytest.mark.full
def test_more_elements_than_an_int32_counts(device: str) -> None:
    """About 2 GiB of bytes: positions beyond 2**31 are written, read, found and counted."""
    x = torch.zeros(COUNT, dtype=torch.int8, device=device)
    assert x.numel() == COUNT
    x[-1] = 7
    x[2**31] = 5
    assert x[COUNT - 1].item() == 7
    assert x.narrow(0, 2**31 - 1, 3).tolist() == [0, 5, 0]
    assert x.argmax().item() == COUNT - 1
    assert x.sum(dtype=torch.int64).item() == 12
    assert x.as_strided((2, 2), (2**31, 4)).flatten().tolist() == [0, 0, 5, 7]
    assert x[2**31 - 2 :].nonzero().flatten().tolist() == [2, 6]
    assert x.view(-1)[torch.tensor([2**31, -1], device=device)].tolist() == [5, 7]
    x[2**31 :].fill_(1)
    assert x[2**31 :].tolist() == [1] * 5
    assert x[2**31 - 1].item() == 0
    del x
    gc.collect()


@pytest.mark.full
def test_large_strides_over_little_memory(device: str) -> None:
    """Broadcast sizes beyond 2**31 elements need no memory of their own."""
    x = torch.ones(1, dtype=torch.float32, device=device).expand(2**33)
    assert x.numel() == 2**33
    assert x[2**33 - 1].item() == 1
    assert x.shape == torch.ones(1).expand(2**33).shape
    assert torch.broadcast_shapes(x.shape, (1,)) == (2**33,)
