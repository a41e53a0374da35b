"""Indexing, scatter and gather, embedding and nll_loss: CPU, device and mixed indices, errors, gradients."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, assert_same, assert_same_module, sample
from torch.nn import functional

pytestmark = pytest.mark.contract("operators")

INDICES = {
    "long": lambda place: torch.tensor([2, 0, 2], device=place),
    "int": lambda place: torch.tensor([1, 3], dtype=torch.int32, device=place),
    "negative": lambda place: torch.tensor([-1, 0], device=place),
    "mask": lambda place: torch.tensor([True, False, True, False], device=place),
    "empty": lambda place: torch.zeros(0, dtype=torch.int64, device=place),
    "scalar": lambda place: torch.tensor(2, device=place),
    "matrix": lambda place: torch.tensor([[0, 1], [3, 2]], device=place),
    "pair": lambda place: (torch.tensor([0, 1], device=place), torch.tensor([4, 2], device=place)),
    "slice and index": lambda place: (slice(None), torch.tensor([4, 2], device=place)),
    "ellipsis": lambda place: (..., torch.tensor([0, 5], device=place)),
    "none and index": lambda place: (None, torch.tensor([1], device=place)),
}


@pytest.mark.parametrize("where", ["cpu", "device"])
@pytest.mark.parametrize("name", INDICES)
def test_index(name: str, where: str, device: str) -> None:
    """An index may live on the CPU or beside the indexed tensor."""
    x = sample(4, 5, 6)
    index = INDICES[name](device if where == "device" else "cpu")
    assert_equal(x.to(device)[index], x[INDICES[name]("cpu")], device)


@pytest.mark.parametrize("order", [("cpu", "device"), ("device", "cpu")])
def test_index_with_mixed_places(order: tuple[str, str], device: str) -> None:
    x = sample(4, 5)
    rows, columns = torch.tensor([0, 3]), torch.tensor([4, 1])
    places = [device if place == "device" else "cpu" for place in order]
    assert_equal(x.to(device)[rows.to(places[0]), columns.to(places[1])], x[rows, columns], device)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("where", ["cpu", "device"])
@pytest.mark.parametrize("name", ["long", "mask", "negative", "empty", "pair", "slice and index"])
def test_index_put(name: str, where: str, accumulate: bool, device: str) -> None:
    expected, actual = sample(4, 5, 6), sample(4, 5, 6).to(device)
    for target, place in ((expected, "cpu"), (actual, device if where == "device" else "cpu")):
        index = INDICES[name](place)
        index = index if isinstance(index, tuple) else (index,)
        index = (
            tuple(part for part in index if isinstance(part, torch.Tensor))
            if name != "slice and index"
            else (None, index[1])
        )
        value = torch.full((1,), 2.5, device=target.device)
        torch.ops.aten.index_put_(target, index, value, accumulate)
    assert_equal(actual, expected, device)


def test_assignment(device: str) -> None:
    def compute(x, value):
        x[1] = 3.0
        x[:, 2] = value
        x[x > 1] = 0
        x[torch.tensor([0, 2]), torch.tensor([1, 1])] = torch.tensor(7.0)
        return x

    assert_same(compute, sample(4, 5), sample(4, seed=8), device=device)


def test_gradient_of_index(device: str) -> None:
    assert_same(
        lambda x, i: x[i] * x[:, 1:][i],
        sample(4, 5, requires_grad=True).detach()[:, :2].requires_grad_(),
        torch.tensor([1, 1, 3]),
        device=device,
    )
    assert_same(
        lambda x, i: x[i], sample(4, 5, requires_grad=True), torch.tensor([1, 1, 3]), device=device, backward=True
    )


@pytest.mark.parametrize("where", ["cpu", "device"])
def test_invalid_index_raises_and_leaves_operands_alone(where: str, device: str) -> None:
    x = sample(4, 5).to(device)
    index = torch.tensor([0, 9], device=device if where == "device" else "cpu")
    place = index.device
    with pytest.raises(IndexError, match=r"out of bounds|out of range"):
        x[index]
    with pytest.raises((IndexError, RuntimeError), match=r"out of bounds|out of range"):
        x[index] = x[:2].clone()  # an index before the bad one may have been written already
    assert x.device.type == device
    assert index.device == place
    assert torch.equal(x.cpu(), sample(4, 5))
    assert index.tolist() == [0, 9]


def test_too_many_indices(device: str) -> None:
    with pytest.raises(IndexError, match="too many indices"):
        sample(4).to(device)[torch.tensor([0]), torch.tensor([0])]


SCATTERS = {
    "gather": lambda x, i, v: x.gather(1, i),
    "scatter": lambda x, i, v: x.scatter(1, i, v),
    "scatter value": lambda x, i, v: x.scatter(1, i, 2.0),
    "scatter_add": lambda x, i, v: x.scatter_add(1, i, v),
    "scatter_add_": lambda x, i, v: x.scatter_add_(1, i, v),
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(1, i, v, "amax"),
    "index_select": lambda x, i, v: x.index_select(1, i[0]),
    "index_add": lambda x, i, v: x.index_add(1, i[0], v[:, :3]),
    "index_copy": lambda x, i, v: x.index_copy(1, i[0], v[:, :3]),
    "index_fill": lambda x, i, v: x.index_fill(1, i[0], 1.5),
    "take": lambda x, i, v: x.take(i),
    "put": lambda x, i, v: x.put(i, v),
    "take_along_dim": lambda x, i, v: x.take_along_dim(i, 1),
    "masked_select": lambda x, i, v: x.masked_select(x > 0),
    "searchsorted": lambda x, i, v: torch.searchsorted(x.sort(1).values, v),
    "bucketize": lambda x, i, v: torch.bucketize(v, x[0].sort().values),
    "bincount": lambda x, i, v: torch.bincount(i.flatten(), minlength=6),
    "one_hot": lambda x, i, v: functional.one_hot(i, 6),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_gather_and_scatter(name: str, device: str) -> None:
    index = torch.tensor([[0, 2, 4], [1, 1, 3], [4, 3, 2], [0, 1, 2]])
    assert_same(SCATTERS[name], sample(4, 5), index, sample(4, 3, seed=8), device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("ids", [(4,), (2, 7)], ids=str)
@pytest.mark.parametrize(
    ("rows", "padding", "scale"), [(10, None, False), (10, 3, False), (10, None, True), (50_000, None, False)]
)
def test_embedding(dtype: torch.dtype, ids, rows: int, padding: int | None, scale: bool, device: str) -> None:
    index = torch.arange(torch.Size(ids).numel()).reshape(ids) * 31 % rows
    weight = sample(rows, 4, dtype=dtype, requires_grad=True)
    assert_same(
        lambda i, w: functional.embedding(i, w, padding_idx=padding, scale_grad_by_freq=scale),
        index,
        weight,
        device=device,
        backward=True,
    )


def test_embedding_modules(device: str) -> None:
    index = torch.tensor([[1, 2, 4], [4, 3, 2]])
    assert_same_module(lambda: torch.nn.Embedding(5, 3), index, device=device)
    for mode in ("sum", "mean", "max"):
        assert_same_module(lambda mode=mode: torch.nn.EmbeddingBag(5, 3, mode=mode), index, device=device)


def test_embedding_dense_backward(device: str) -> None:
    assert_same(
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 6, -1, False),
        sample(2, 3, 4),
        torch.tensor([[0, 1, 1], [5, 0, 2]]),
        device=device,
    )


def test_embedding_renormalises_its_weight(device: str) -> None:
    assert_same(
        lambda i, w: functional.embedding(i, w, max_norm=0.5), torch.tensor([0, 2]), sample(4, 3), device=device
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [-100, 1])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3, 3)], ids=str)
def test_nll_loss(reduction: str, weighted: bool, ignore: int, shape, device: str) -> None:
    target = torch.arange(torch.Size((shape[0], *shape[2:])).numel()).reshape(shape[0], *shape[2:]) % 5
    weight = sample(5).abs() if weighted else None
    assert_same(
        lambda x, t, w: functional.nll_loss(
            functional.log_softmax(x, 1), t, w, reduction=reduction, ignore_index=ignore
        ),
        sample(*shape, requires_grad=True),
        target,
        weight,
        device=device,
        backward=True,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float, device: str) -> None:
    x, target = sample(6, 5, requires_grad=True), torch.tensor([0, 1, 2, 3, 4, 0])
    assert_same(
        lambda x, t: functional.cross_entropy(x, t, label_smoothing=smoothing), x, target, device=device, backward=True
    )
    assert_same(
        lambda x, t: functional.cross_entropy(x, t.softmax(1)), x, sample(6, 5, seed=8), device=device, backward=True
    )
