"""Reductions, softmax and scans: full, by dimension, several dimensions, keepdim and dtypes, equal to the CPU."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = [
    pytest.mark.contract("operators"),
    pytest.mark.filterwarnings("ignore:std.*degrees of freedom"),
]

REDUCTIONS = {
    "sum": (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool),
    "mean": (torch.float32, torch.float16, torch.bfloat16, torch.float64),
    "amax": (torch.float32, torch.bfloat16, torch.int64),
    "amin": (torch.float32, torch.int32),
    "all": (torch.bool, torch.float32, torch.uint8),
    "any": (torch.bool, torch.int64),
    "std": (torch.float32, torch.float64),
    "logsumexp": (torch.float32, torch.bfloat16),
}
CASES = [(name, dtype) for name, dtypes in REDUCTIONS.items() for dtype in dtypes]
DIMS = [0, 1, -1, (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_by_dimension(name: str, dtype: torch.dtype, dim, keepdim: bool, device: str) -> None:
    function = getattr(torch, name)
    for shape in ((4, 5, 6), (2, 1, 70)):
        assert_same(
            lambda x, dim=dim: function(x, dim=dim, keepdim=keepdim), sample(*shape, dtype=dtype), device=device
        )


@pytest.mark.parametrize(
    ("name", "dtype"), [case for case in CASES if case[0] not in ("amax", "amin", "logsumexp")], ids=str
)
def test_full(name: str, dtype: torch.dtype, device: str) -> None:
    for shape in ((), (1,), (128, 256), (64, 64, 64)):
        assert_same(getattr(torch, name), sample(*shape, dtype=dtype), device=device)


def test_fully_broadcast_input(device: str) -> None:
    assert_same(lambda x: (x.expand(16, 32).sum(), x.expand(16, 32).mean(0)), sample(1), device=device)


def test_sum_keeps_or_changes_dtype(device: str) -> None:
    x = sample(10, dtype=torch.int32)
    assert_same(lambda x: (x.sum(), x.sum(dtype=torch.int32), x.sum(0, dtype=torch.float64)), x, device=device)


def test_out_of_wrong_shape_is_resized(device: str) -> None:
    def compute(x):
        out = torch.empty(0, dtype=x.dtype, device=x.device)
        return torch.sum(x, dim=1, out=out) is out, out

    assert_same(compute, sample(4, 5), device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_softmax(dtype: torch.dtype, dim: int, device: str) -> None:
    x = sample(3, 8, 17, dtype=dtype, requires_grad=True)
    result = assert_same(lambda x: torch.softmax(x, dim), x, device=device, backward=True)
    assert_same(lambda x: torch.log_softmax(x, dim), x, device=device, backward=True)
    sums = result.detach().to("cpu", torch.float64).sum(dim)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=17 * torch.finfo(dtype).eps)


def test_softmax_with_dtype(device: str) -> None:
    assert_same(lambda x: torch.softmax(x, -1, dtype=torch.float32), sample(4, 9, dtype=torch.float16), device=device)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
def test_scans(name: str, dim: int, dtype: torch.dtype, device: str) -> None:
    if name == "logcumsumexp" and not dtype.is_floating_point:
        dtype = torch.float32
    assert_same(lambda x: getattr(torch, name)(x, dim), sample(5, 7, dtype=dtype), device=device)
    if dtype in (torch.float32, torch.int64) and name != "logcumsumexp":
        assert_same(lambda x: getattr(x, f"{name}_")(dim), sample(5, 7, dtype=dtype), device=device)


@pytest.mark.parametrize(
    "name", ["max", "min", "median", "mode", "kthvalue", "argmax", "argmin", "sort", "argsort", "topk"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32], ids=str)
def test_with_indices(name: str, dtype: torch.dtype, device: str) -> None:
    extra = (3,) if name in ("kthvalue", "topk") else ()
    for dim in (0, -1):
        assert_same(lambda x, dim=dim: getattr(torch, name)(x, *extra, dim), sample(6, 9, dtype=dtype), device=device)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_data_dependent_sizes(size: int, device: str) -> None:
    x = sample(size, dtype=torch.int64)
    assert_same(
        lambda x: (
            x.nonzero(),
            x[x > 0],
            torch.unique(x, return_inverse=True, return_counts=True),
            x.masked_select(x < 0),
        ),
        x,
        device=device,
    )
