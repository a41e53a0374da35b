"""Pieces of work for threads: each computes from a seed and from tensors that all threads share, and says what it got.

A piece run twice with one seed gives the same bits, on flagos and on the CPU, whatever other threads do meanwhile.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Overloads whose route may change under the pieces. With `none` the first ones make a trip to the CPU, the others
#: become their `out=` spelling, and those in the last line make the trip then. The bits stay in each case. (Where
#: `none` composes a call of other operators, as native_layer_norm, the bits are those of the parts.)
SWAPPED_OVERLOADS = (
    "convolution", "convolution_backward", "embedding_dense_backward", "fill_.Scalar", "flip", "index_select",
    "masked_fill_.Scalar", "max", "native_batch_norm", "native_batch_norm_backward", "native_layer_norm_backward",
    "nonzero", "normal_", "uniform_", "zero_", "relu", "randperm.generator_out", "random_.from",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "add.Tensor", "add_.Tensor", "mul.Tensor", "mul_.Tensor", "mm", "addmm", "cat", "sum.dim_IntList", "tanh",
    "tanh_backward", "threshold_backward", "addcdiv_", "lerp_.Scalar", "index_add_", "gather", "topk", "sort.stable",
    "add.out", "mul.out", "mm.out", "addmm.out", "cat.out", "sum.IntList_out", "tanh.out", "lerp.Scalar_out",
)  # fmt: skip
SWAPPED_ROUTES = ("none", "host > none", "host")

FEATURES, HIDDEN, CLASSES = 12, 16, 6


class Shared:
    """Tensors that every thread reads and none writes, and one leaf to whose gradient every thread adds integers."""

    def __init__(self, device: str) -> None:
        generator = torch.Generator().manual_seed(20)

        def parameter(*size: int) -> torch.Tensor:
            return torch.randn(size, generator=generator).to(device).requires_grad_()

        self.first = parameter(HIDDEN, FEATURES)
        self.first_bias = parameter(HIDDEN)
        self.second = parameter(CLASSES, HIDDEN)
        self.scale = parameter(HIDDEN)
        self.shift = parameter(HIDDEN)
        self.table = parameter(20, FEATURES)
        self.filters = parameter(4, 3, 3, 3)
        self.plain = torch.arange(60, dtype=torch.float32).view(6, 10).to(device)
        # Sums of small integers in float64 are exact, so the order in which threads add them does not show.
        self.counted = torch.zeros(8, dtype=torch.float64, device=device, requires_grad=True)

    def weights(self) -> list[torch.Tensor]:
        return [self.first, self.first_bias, self.second, self.scale, self.shift]

    def network(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.layer_norm(F.linear(x, self.first, self.first_bias), (HIDDEN,), self.scale, self.shift)
        return F.linear(torch.tanh(hidden), self.second)


@dataclass(frozen=True)
class Place:
    """Where a piece runs: the device, the tensors shared there, and the seed of this run."""

    device: str
    shared: Shared
    seed: int

    def choices(self) -> random.Random:
        return random.Random(self.seed)

    def sample(self, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers, the same ones on every device and for every call with this size."""
        return torch.randn(size, generator=torch.Generator().manual_seed(self.seed)).to(dtype).to(self.device)

    def integers(self, high: int, *size: int) -> torch.Tensor:
        return torch.randint(high, size, generator=torch.Generator().manual_seed(self.seed)).to(self.device)


def forward(place: Place) -> list[torch.Tensor]:
    with torch.no_grad():
        return [place.shared.network(place.sample(5, FEATURES)), (place.shared.plain.t() * 3).sum(0)]


def gradients(place: Place) -> list[torch.Tensor]:
    x = place.sample(4, FEATURES).requires_grad_()
    loss = F.cross_entropy(place.shared.network(x), place.integers(CLASSES, 4))
    return [loss, *torch.autograd.grad(loss, [x, *place.shared.weights()])]


def second_gradients(place: Place) -> list[torch.Tensor]:
    x = place.sample(3, FEATURES).requires_grad_()
    (inner,) = torch.autograd.grad(torch.tanh(x @ place.shared.first.t()).sum(), x, create_graph=True)
    return list(torch.autograd.grad(inner.square().sum(), [x, place.shared.first]))


def shared_leaf(place: Place) -> list[torch.Tensor]:
    """Adds to the gradient of the leaf that all threads share; what it sums up to is looked at when all are done."""
    steps = place.integers(5, 8).double()
    (place.shared.counted * steps).sum().backward()
    return [steps]


def views_in_place(place: Place) -> list[torch.Tensor]:
    x = place.sample(6, 8)
    base = x.clone()
    x[1:3].mul_(2).add_(1)
    x.t()[2].copy_(place.integers(9, 6))
    left, right = x.chunk(2, dim=1)
    left.add_(right)
    x.as_strided((3, 3), (8, 2), 1).neg_()
    x.masked_fill_(base > 1, 0.5)
    x[:, 1::2].fill_(0.25)
    x.view(-1)[::7].index_add_(0, torch.tensor([0, 3], device=x.device), base[0, :2])
    return [x, x.t().contiguous(), base.resize_(3, 5), x.select(1, 2).expand(4, 6)]


def own_generator(place: Place) -> list[torch.Tensor]:
    generator = torch.Generator(device=place.device).manual_seed(place.seed)
    options = {"generator": generator, "device": place.device}
    drawn = [torch.rand(5, **options), torch.randn(2, 3, **options), torch.randint(100, (7,), **options)]
    state = generator.get_state()
    noise = torch.empty(9, device=place.device).uniform_(-1, 1, generator=generator)
    generator.set_state(state)
    again = torch.empty(9, device=place.device).normal_(generator=generator)
    return [*drawn, noise, again, torch.randperm(11, **options)]


def embeddings(place: Place) -> list[torch.Tensor]:
    rows = F.embedding(place.integers(20, 7), place.shared.table)
    return [rows, *torch.autograd.grad(rows.square().sum(), place.shared.table)]


def convolution(place: Place) -> list[torch.Tensor]:
    image = place.sample(2, 3, 7, 7).requires_grad_()
    result = F.max_pool2d(F.relu(F.conv2d(image, place.shared.filters, padding=1)), 2)
    return [result, *torch.autograd.grad(result.sum(), [image, place.shared.filters])]


def batch_norm(place: Place) -> list[torch.Tensor]:
    layer = torch.nn.BatchNorm2d(3).to(place.device)
    result = layer(place.sample(2, 3, 4, 4))
    result.square().sum().backward()
    return [result, layer.running_mean, layer.running_var, layer.weight.grad]


def optimizer(place: Place) -> list[torch.Tensor]:
    form = place.choices().choice([{"foreach": True}, {"fused": True}, {"foreach": False}])
    parameters = [place.sample(3, 4).requires_grad_(), place.sample(5).requires_grad_()]
    adam = torch.optim.AdamW(parameters, lr=0.1, **form)
    for _ in range(2):
        adam.zero_grad()
        (parameters[0].square().sum() + parameters[1].sin().sum()).backward()
        adam.step()
    return parameters


def shapes(place: Place) -> list[torch.Tensor]:
    x = place.sample(6, 5)
    order = x.sort(dim=1, stable=True)
    picked = x.index_select(0, torch.tensor([4, 1, 1], device=x.device))
    return [torch.cat([x, picked]), torch.stack([x, x.flip(0)]), *order, *x.topk(3), x.gather(1, order.indices),
            *x.split([2, 4]), x[x > 0], (x > 1).nonzero()]  # fmt: skip


def pinned(place: Place) -> list[torch.Tensor]:
    host = torch.randn(64, generator=torch.Generator().manual_seed(place.seed)).pin_memory()
    moved = host.to(place.device, non_blocking=True)
    back = torch.empty(64).pin_memory()
    back.copy_(moved * 2, non_blocking=True)
    if not (host.is_pinned() and host[5:].is_pinned() and back.is_pinned()):
        raise AssertionError("pinned memory is not known as pinned")
    return [moved, back]


def allocations(place: Place) -> list[torch.Tensor]:
    choices, kept = place.choices(), []
    for _ in range(12):
        kept.append(torch.full((choices.randrange(400),), float(len(kept)), device=place.device))
        if choices.random() < 0.5:
            kept.pop(choices.randrange(len(kept)))
    storage = torch.ones(50, device=place.device)
    storage.untyped_storage().resize_(0)
    storage.untyped_storage().resize_(200)
    return [*kept, storage.zero_()]


def mixed_precision(place: Place) -> list[torch.Tensor]:
    x = place.sample(4, FEATURES)
    with torch.autocast(torch.device(place.device).type, dtype=torch.bfloat16):
        result = F.linear(x, place.shared.first)
    return [result, *torch.autograd.grad(result.float().sum(), place.shared.first)]


class Cube(torch.autograd.Function):
    """x³, with both directions in Python."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def python_backward(place: Place) -> list[torch.Tensor]:
    x = place.sample(5, 3).requires_grad_()
    seen: list[torch.Tensor] = []
    hooked = Cube.apply(x)
    hooked.register_hook(lambda gradient: seen.append(gradient.clone()) or gradient * 2)
    Cube.apply(hooked).sum().backward()
    return [x.grad, *seen]


def checkpointed(place: Place) -> list[torch.Tensor]:
    x = place.sample(3, FEATURES).requires_grad_()
    result = checkpoint(place.shared.network, x, use_reentrant=False, preserve_rng_state=False)
    return [result, *torch.autograd.grad(result.sum(), [x, *place.shared.weights()])]


def refused(place: Place) -> list[torch.Tensor]:
    """Errors leave nothing behind."""
    x = place.sample(3, 4).requires_grad_()
    for wrong in (lambda: x @ x, lambda: x.view(7), lambda: torch.add(x.detach(), 1, out=x.detach()[:2].bool())):
        try:
            wrong()
        except RuntimeError:
            continue
        raise AssertionError("no error")
    return [x * 2]


def other_device(place: Place) -> list[torch.Tensor]:
    if torch.device(place.device).type == "cpu" or torch.flagos.device_count() < 2:
        return [place.sample(6).mul(2), place.sample(6).cumsum(0)]
    with torch.flagos.device(1):
        here = place.sample(6).to("flagos")
        result = here * 2
        if torch.flagos.current_device() != 1 or result.device.index != 1:
            raise AssertionError(f"expected device 1, found {result.device}")
    return [result, here.cumsum(0)]


def streams(place: Place) -> list[torch.Tensor]:
    x = place.sample(9)
    if torch.device(place.device).type == "cpu":
        return [x * 2 + 1]
    stream, event = torch.flagos.Stream(), torch.flagos.Event()
    with torch.flagos.stream(stream):
        y = x * 2
        y.record_stream(stream)
        event.record()
    event.synchronize()
    torch.flagos.current_stream().wait_stream(stream)
    return [y + 1]


def recurrent(place: Place) -> list[torch.Tensor]:
    x = place.sample(3, 2, 4).requires_grad_()
    generator = torch.Generator().manual_seed(place.seed)
    sizes = [(12, 4), (12, 3), (12,), (12,)]
    weights = [torch.randn(size, generator=generator).to(place.device).requires_grad_() for size in sizes]
    state = torch.zeros(1, 2, 3, device=place.device)
    result, *_ = torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, False)
    return [result, *torch.autograd.grad(result.sum(), [x, *weights])]


def attention(place: Place) -> list[torch.Tensor]:
    query = place.sample(2, 2, 5, 8).requires_grad_()
    result = F.scaled_dot_product_attention(query, query * 2, query + 1, is_causal=True)
    return [result, *torch.autograd.grad(result.sum(), query)]


def dtypes(place: Place) -> list[torch.Tensor]:
    x = place.sample(4, 4) * 10
    wave = torch.view_as_complex(x.view(4, 2, 2)).conj()
    return [x.half(), x.bfloat16() + 1, x.int() // 3, (x > 0) & (x < 5), x.double().exp(), wave * 2, wave.imag.clone(),
            torch.tensor([x.sum().item(), float(x.max())])]  # fmt: skip


PIECES: tuple[Callable[[Place], list[torch.Tensor]], ...] = (
    forward, gradients, second_gradients, shared_leaf, views_in_place, own_generator, embeddings, convolution,
    batch_norm, optimizer, shapes, pinned, allocations, mixed_precision, python_backward, checkpointed, refused,
    other_device, streams, recurrent, attention, dtypes,
)  # fmt: skip


def digest(tensors: Iterable[torch.Tensor]) -> bytes:
    """A hash of dtypes, shapes and bits."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)};".encode())
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        found.update(plain.view(-1).view(torch.uint8).numpy().tobytes())
    return found.digest()


def piece_of(seed: int, iteration: int) -> tuple[Callable[[Place], list[torch.Tensor]], int]:
    """What iteration number `iteration` of a run with this seed does: a piece of work and the seed of its numbers."""
    choices = random.Random(f"{seed}:{iteration}")
    return choices.choice(PIECES), choices.getrandbits(31)


def run_iteration(device: str, shared: Shared, seed: int, iteration: int) -> bytes:
    """Computes one iteration and hashes what came out."""
    piece, numbers = piece_of(seed, iteration)
    return digest(piece(Place(device, shared, numbers)))
