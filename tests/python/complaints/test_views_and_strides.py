"""Complaint 3, wrong results or corrupted memory on views: operators on every layout, in place, and as a result.

pytorch#183419, pytorch#146085, pytorch#197636, Torch-FL#76, Torch-FL#50 (unfold)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import assert_same, difference, sample

if TYPE_CHECKING:
    from collections.abc import Callable

functional = torch.nn.functional

#: Each gives a tensor of size (2, 3, 4, 5) over memory that is arranged in another way.
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: sample(2, 3, 4, 5),
    "channels last": lambda: sample(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: sample(5, 4, 3, 2).permute(3, 2, 1, 0),
    "every second": lambda: sample(4, 6, 8, 10)[::2, ::2, ::2, ::2],
    "offset": lambda: sample(3, 4, 5, 6)[1:, 1:, 1:, 1:],
    "odd offset": lambda: sample(121).as_strided((2, 3, 4, 5), (60, 20, 5, 1), 1),
    "channels last part": lambda: sample(2, 6, 4, 5).to(memory_format=torch.channels_last)[:, 1:4],
    "expanded": lambda: sample(2, 1, 4, 1).expand(2, 3, 4, 5),
    "one value": lambda: sample().expand(2, 3, 4, 5),
    "windows": lambda: sample(2, 3, 8).unfold(2, 5, 1),
    "overlapping": lambda: sample(40).as_strided((2, 3, 4, 5), (7, 3, 2, 1)),
    "double precision": lambda: sample(2, 3, 4, 5, dtype=torch.float64).transpose(1, 3).contiguous().transpose(1, 3),
    "imaginary part": lambda: sample(2, 3, 4, 5, dtype=torch.complex64).imag,
    "negative view": lambda: sample(2, 3, 4, 5, dtype=torch.complex64).conj().imag,
}

OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + x,
    "add a row": lambda x: x + x[0, 0, 0],
    "copy": lambda x: x.clone(),
    "preserve": lambda x: torch.empty_like(x).copy_(x),
    "contiguous": lambda x: (x.contiguous(), x.contiguous(memory_format=torch.channels_last)),
    "cast": lambda x: x.to(torch.int16),
    "reshape": lambda x: (x.reshape(-1), x.flatten(1), x.reshape(6, 20)),
    "repeat": lambda x: x.repeat(1, 2, 1, 2),
    "repeat windows": lambda x: x.unfold(3, 3, 2).repeat(1, 1, 2, 1, 1),
    "cat": lambda x: torch.cat([x, x.transpose(2, 3).contiguous().transpose(2, 3)], 1),
    "stack": lambda x: torch.stack([x, x], -1),
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)),
    "max": lambda x: x.max(2),
    "argmin": lambda x: x.argmin(),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(3),
    "sort": lambda x: x.sort(dim=2, stable=True),
    "topk": lambda x: x.topk(2, 1),
    "matmul": lambda x: x @ x.transpose(2, 3),
    "linear": lambda x: functional.linear(x, torch.ones(2, 5, dtype=x.dtype, device=x.device)),
    "conv2d": lambda x: functional.conv2d(x, torch.ones(2, 3, 2, 2, dtype=x.dtype, device=x.device)),
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "layer_norm": lambda x: functional.layer_norm(x, (5,)),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1)),
    "roll and flip": lambda x: (x.roll(1, 2), x.flip(1, 3)),
    "gather": lambda x: x.gather(3, torch.zeros(2, 3, 4, 1, dtype=torch.long, device=x.device)),
    "index": lambda x: x[torch.tensor([1, 0], device=x.device), :, 1],
    "mask": lambda x: x[x > 0],
    "where": lambda x: torch.where(x > 0, x, x.transpose(0, 0)),
    "nonzero": lambda x: (x > 0).nonzero(),
    "bits": lambda x: x.contiguous().view(torch.int32 if x.element_size() == 4 else torch.int64),
    "foreach": lambda x: torch._foreach_add([x, x[0]], 1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=(1, 2)),
    "to the CPU": lambda x: x.cpu().tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_operator_on_every_layout(layout: str, device: str) -> None:
    for name, compute in OPERATORS.items():
        try:
            assert_same(compute, LAYOUTS[layout](), device=device)
        except Exception as error:
            raise AssertionError(f"{name} on {layout}: {error}") from error


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda x: x.add_(1),
    "mul_ itself": lambda x: x.mul_(x),
    "fill_": lambda x: x.fill_(3),
    "copy_": lambda x: x.copy_(torch.ones(5, dtype=x.dtype, device=x.device)),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, -1.0),
    "index_fill_": lambda x: x.index_fill_(1, torch.tensor([0, 2], device=x.device), 9.0),
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "out": lambda x: torch.add(x.clone(), 1, out=x),
    "out of another": lambda x: torch.matmul(x.clone(), torch.eye(5, dtype=x.dtype, device=x.device), out=x),
    "scan out": lambda x: torch.cumsum(x.clone(), 3, out=x),
    "foreach_": lambda x: torch._foreach_add_([x[0], x[1]], 1),
    "set item": lambda x: x.__setitem__((slice(None), 1), 4.0),
    "uniform_": lambda x: x.uniform_(),
    "transpose_": lambda x: x.transpose_(1, 2),
    "dropout_": lambda x: functional.dropout(x, 0.5, inplace=True),
}


def outcome(compute: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "returned", compute()
    except RuntimeError as error:
        return "raised", str(error).splitlines()[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_writing_into_every_layout(layout: str, device: str) -> None:
    """The whole memory is compared, so that a write beside the view shows; refusals have the CPU's words."""
    for name, write in WRITES.items():
        seen = []
        for place in ("cpu", device):
            source = LAYOUTS[layout]()
            flat = source.detach().as_strided((source.untyped_storage().nbytes() // source.element_size(),), (1,), 0)
            memory = torch._neg_view(flat).clone() if source.is_neg() else flat.clone()
            memory = memory.to(place)
            view = memory.as_strided(source.size(), source.stride(), source.storage_offset())
            if source.is_neg():
                view = torch._neg_view(view)
            torch.manual_seed(4)
            kind, result = outcome(lambda view=view, write=write: write(view))
            facts = (view.size(), view.stride(), view._version)
            seen.append((kind, result if kind == "raised" else facts, memory.cpu()))
        (kind, fact, memory), (found_kind, found_fact, found_memory) = seen
        assert (found_kind, found_fact) == (kind, fact), f"{name} on {layout}"
        reason = difference(found_memory, memory, device="cpu", path=f"memory after {name} on {layout}")
        assert not reason, reason


FORMATS = {
    torch.contiguous_format: (2, 3, 4, 5),
    torch.channels_last: (2, 3, 4, 5),
    torch.channels_last_3d: (2, 3, 2, 4, 5),
    torch.preserve_format: (2, 3, 4, 5),
}


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
def test_every_memory_format_is_kept_or_changed_as_on_the_cpu(memory_format: torch.memory_format, device: str) -> None:
    size = FORMATS[memory_format]
    last = torch.channels_last_3d if len(size) == 5 else torch.channels_last
    for start in (torch.contiguous_format, last):
        x = sample(*size).contiguous(memory_format=start)
        for source in (x, x[:, :, ::2], x[:, :1], x[:1], x[:0]):
            assert_same(
                lambda y: (
                    y.to(memory_format=memory_format),
                    y.clone(memory_format=memory_format),
                    torch.empty_like(y, memory_format=memory_format).fill_(1),
                    y.to(torch.float64, memory_format=memory_format),
                    y.is_contiguous(memory_format=last),
                    (y + 1).stride(),
                    (y * y[:1]).stride(),
                ),
                source,
                device=device,
            )


BEYOND = {
    "longer than memory": lambda x: x.as_strided((100,), (1,)),
    "last step outside": lambda x: x.as_strided((2, 2), (3, 2)),
    "negative offset": lambda x: x.as_strided((2, 2), (1, 1), -1),
    "negative stride": lambda x: x.as_strided((2,), (-1,)),
    "ranks that differ": lambda x: x.as_strided((2,), (1, 1)),
    "offset at the end": lambda x: x.as_strided((1,), (1,), 4),
    "nothing, outside": lambda x: x.as_strided((0, 7), (50, 3), 2),
    "huge stride": lambda x: x.as_strided((2,), (2**62,)),
    "view of another size": lambda x: x.view(5),
    "view of a transposed one": lambda x: x.view(2, 2).t().view(4),
    "narrow outside": lambda x: x.narrow(0, 3, 2),
    "window too long": lambda x: x.unfold(0, 9, 1),
    "storage offset outside": lambda x: x.set_(x.untyped_storage(), -1, (1,), (1,)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_beyond_the_memory_is_refused_in_the_same_words(name: str, device: str) -> None:
    expected = outcome(lambda: BEYOND[name](sample(4)))
    actual = outcome(lambda: BEYOND[name](sample(4).to(device)))
    assert actual[0] == expected[0], (actual, expected)
    if expected[0] == "raised":
        assert actual[1] == expected[1]
    else:
        assert not (reason := difference(actual[1], expected[1], device=device)), reason


def test_gradients_through_views_of_views(device: str) -> None:
    def compute(x: torch.Tensor) -> torch.Tensor:
        y = x.permute(2, 0, 1)[1:]
        z = y.unfold(1, 2, 1).flatten(1)[:, ::2]
        return z.as_strided((2, 3), (1, 2)) * y[:, 0, :1]

    assert_same(compute, sample(3, 4, 3, requires_grad=True), device=device, backward=True)


def test_a_view_written_in_place_before_backward(device: str) -> None:
    def compute(x: torch.Tensor) -> torch.Tensor:
        base = x * 2
        base.t()[1:].mul_(3)
        base.diagonal().add_(1)
        base[:, ::2] = base[:, 1:2]
        return base

    assert_same(compute, sample(4, 4, requires_grad=True), device=device, backward=True)
