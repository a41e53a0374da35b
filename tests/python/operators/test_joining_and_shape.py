"""cat, stack, clamp, where, padding, narrow, diff and views: values, layouts and gradients as on the CPU."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample
from torch.nn import functional

pytestmark = pytest.mark.contract("operators")

CAT = [
    *[
        (((2, 3), (4, 3)), 0, dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
    ],
    *[(((2, 3), (2, 5)), dim, torch.float32) for dim in (1, -1)],
    *[(((2, 3, 4), (2, 3, 4), (2, 3, 4)), dim, torch.float32) for dim in (0, 1, 2, -1, -2, -3)],
    *[(((0,), (3, 4)), dim, torch.float32) for dim in (0, 1, -1, -2)],
    *[(((3, 4), (0,), (3, 4)), dim, torch.float16) for dim in (0, -2)],
    (((0, 4), (3, 4)), 0, torch.float32),
    (((1, 8, 5, 16), (1, 8, 1, 16)), 2, torch.float16),
    (((1, 8, 5, 16), (1, 8, 1, 16)), -2, torch.bfloat16),
    (((2, 4, 7, 8), (2, 4, 7, 8)), -1, torch.float16),
    (((5,),), 0, torch.float32),
    (tuple((1, 3) for _ in range(40)), 0, torch.float32),
]


@pytest.mark.parametrize(("shapes", "dim", "dtype"), CAT, ids=lambda value: str(value)[:40])
def test_cat(shapes, dim: int, dtype: torch.dtype, device: str) -> None:
    parts = [sample(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    assert_same(lambda *parts: torch.cat(parts, dim), *parts, device=device)


@pytest.mark.parametrize(
    "arrange", [lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:], lambda x: x[:1].expand(4, 6)]
)
def test_cat_of_strided_parts(arrange, device: str) -> None:
    x = arrange(sample(4, 6, requires_grad=True).detach()).requires_grad_()
    assert_same(lambda x: torch.cat([x, x * 2], 1), x, device=device, backward=True)


def test_cat_promotes_and_writes_out(device: str) -> None:
    a, b = sample(3, dtype=torch.int32), sample(2)
    assert_same(lambda a, b: torch.cat([a, b]), a, b, device=device)
    assert_same(lambda a, b: torch.cat([a, b], out=torch.empty(0, device=a.device)), a, b, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_cache_append_loop(dtype: torch.dtype, device: str) -> None:
    def compute(*steps):
        cache = torch.empty(0, dtype=dtype, device=steps[0].device)
        for step in steps:
            cache = torch.cat([cache, step], dim=-2)
        return cache

    assert_same(compute, *[sample(1, 2, 1, 8, dtype=dtype, seed=seed) for seed in range(6)], device=device)


@pytest.mark.parametrize("name", ["stack", "hstack", "vstack", "dstack", "column_stack"])
def test_stacks(name: str, device: str) -> None:
    assert_same(lambda a, b: getattr(torch, name)([a, b]), sample(3, 4), sample(3, 4, seed=8), device=device)


CLAMPS = [
    pytest.param(lambda x, lo, hi: x.clamp(-1, 1), id="both"),
    pytest.param(lambda x, lo, hi: x.clamp(min=0), id="low"),
    pytest.param(lambda x, lo, hi: x.clamp(max=0), id="high"),
    pytest.param(lambda x, lo, hi: x.clamp_(-1, 1), id="in place"),
    pytest.param(lambda x, lo, hi: x.clamp(lo, hi), id="tensors"),
    pytest.param(lambda x, lo, hi: x.clamp(min=lo), id="low tensor"),
    pytest.param(lambda x, lo, hi: x.clamp_(max=hi), id="high tensor in place"),
    pytest.param(lambda x, lo, hi: x.clamp(lo[0], hi[:, :1]), id="broadcast"),
    pytest.param(lambda x, lo, hi: torch.clamp(x, 2, -2), id="crossed"),
    pytest.param(lambda x, lo, hi: torch.clamp(x, -1, 1, out=torch.empty_like(x)), id="out"),
]


@pytest.mark.parametrize("compute", CLAMPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int64], ids=str)
def test_clamp(compute, dtype: torch.dtype, device: str) -> None:
    x, low, high = sample(4, 5, dtype=dtype), sample(4, 5, dtype=dtype, seed=1), sample(4, 5, dtype=dtype, seed=2)
    assert assert_same(compute, x, low, high, device=device).dtype == dtype


WHERES = [
    pytest.param(lambda c, a, b: torch.where(c, a, b), id="tensors"),
    pytest.param(lambda c, a, b: torch.where(c, a, 0.0), id="scalar right"),
    pytest.param(lambda c, a, b: torch.where(c, 1, b), id="scalar left"),
    pytest.param(lambda c, a, b: torch.where(c[:, :1], a[0], b), id="broadcast"),
    pytest.param(lambda c, a, b: torch.where(c), id="indices"),
    pytest.param(lambda c, a, b: torch.where(c, a, b.double()), id="promotion"),
    pytest.param(lambda c, a, b: a.masked_fill(c, 3.5), id="masked_fill"),
    pytest.param(lambda c, a, b: a.masked_fill_(c, b[0, 0]), id="masked_fill_ tensor"),
    pytest.param(lambda c, a, b: a.masked_scatter(c, b), id="masked_scatter"),
]


@pytest.mark.parametrize("compute", WHERES)
def test_where(compute, device: str) -> None:
    assert_same(compute, sample(4, 5, dtype=torch.bool), sample(4, 5), sample(4, 5, seed=8), device=device)


PADS = [
    ((1, 2), "constant"),
    ((1, 2, 3, 0), "constant"),
    ((-1, 1), "constant"),
    ((2, 2), "reflect"),
    ((1, 3), "replicate"),
    ((2, 1), "circular"),
]


@pytest.mark.parametrize(("pad", "mode"), PADS, ids=str)
def test_pad(pad, mode: str, device: str) -> None:
    x = sample(2, 3, 6, requires_grad=True)
    assert_same(lambda x: functional.pad(x, pad, mode), x, device=device, backward=True)
    if mode == "constant":
        assert_same(lambda x: torch.constant_pad_nd(x, list(pad), 2.5), x, device=device, backward=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_narrow_slice_and_their_gradients(dim: int, device: str) -> None:
    x = sample(4, 5, 6, requires_grad=True)
    assert_same(lambda x: x.narrow(dim, 1, 2) * 2, x, device=device, backward=True)
    assert_same(lambda x: x.narrow(dim, torch.tensor(1), 2), x, device=device)
    gradient = sample(4, 5, 6).narrow(dim, 0, 2)
    assert_same(lambda g: torch.ops.aten.slice_backward(g, [4, 5, 6], dim, 0, 4, 2), gradient, device=device)
    assert_same(
        lambda x: torch.ops.aten.select_backward(x.select(dim, 0), [4, 5, 6], dim, 2), x.detach(), device=device
    )


@pytest.mark.parametrize("n", [0, 1, 2])
def test_diff(n: int, device: str) -> None:
    x, edge = sample(3, 8), sample(3, 2, seed=8)
    assert_same(
        lambda x, e: (torch.diff(x, n), torch.diff(x, n, prepend=e), torch.diff(x, n, append=e, prepend=e)),
        x,
        edge,
        device=device,
    )


VIEWS = {
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[1:, ::2],
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:, :1].expand(4, 5, 6),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "view": lambda x: x.view(20, 6),
    "view -1": lambda x: x.view(-1),
    "view dtype": lambda x: x.view(torch.int32),
    "unfold": lambda x: x.unfold(2, 3, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (7, 2), 4),
    "movedim": lambda x: x.movedim(0, -1),
    "chunk": lambda x: x.chunk(3, 2)[1],
    "split": lambda x: x.split([1, 4], 1)[1],
    "tensor_split": lambda x: x.tensor_split(3)[2],
    "unbind": lambda x: x.unbind(1)[3],
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_shares_memory(name: str, device: str) -> None:
    view = VIEWS[name]
    assert_same(view, sample(4, 5, 6), device=device)
    base = sample(4, 5, 6).to(device)
    result = view(base)
    assert result.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    result.zero_()
    expected = sample(4, 5, 6)
    view(expected).zero_()
    assert torch.equal(base.cpu(), expected)


def test_in_place_metadata_changes(device: str) -> None:
    assert_same(lambda x: (x.t_(), x.unsqueeze_(0), x.squeeze_(0), x.transpose_(0, 1)), sample(3, 4), device=device)
    assert_same(lambda x: x.as_strided_((2, 2), (1, 3)), sample(3, 4), device=device)


def test_tensor_split_by_cpu_tensor(device: str) -> None:
    assert_same(lambda x: x.tensor_split(torch.tensor([1, 3])), sample(6, 2), device=device)


@pytest.mark.parametrize(
    "name", ["flip", "roll", "rot90", "tril", "triu", "repeat", "tile", "repeat_interleave", "trace"]
)
def test_rearrangements(name: str, device: str) -> None:
    extra = {"flip": ([0],), "roll": (2, 1), "repeat": (2, 3), "tile": ((2, 1),), "repeat_interleave": (2,)}.get(
        name, ()
    )
    assert_same(lambda x: getattr(x, name)(*extra), sample(4, 5), device=device)
