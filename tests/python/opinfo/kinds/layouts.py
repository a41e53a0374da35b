"""Kind `layouts`: the sample's tensors laid out in memory in other ways, forward, and backward where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from parity import map_tensors, tensors_in

from opinfo.attempts import Attempt, two_runs
from opinfo.cases import OPERATORS, Case
from opinfo.samples import Sample

from . import gradients, values


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with an unused element after each one."""
    wide = tensor.new_zeros((*tensor.shape, 2))
    wide[..., 0] = tensor
    return wide[..., 0]


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, stored with the last two dimensions exchanged."""
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else tensor


def with_offset(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, three elements behind the start of a longer storage."""
    longer = tensor.new_zeros(tensor.numel() + 5)
    inside = longer[3 : 3 + tensor.numel()].view(tensor.shape)
    return inside.copy_(tensor)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """The first slice of the first dimension, repeated by a stride of 0."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.shape[0] > 1 else tensor


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def without_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Size 0 in the first dimension."""
    return tensor[:0] if tensor.dim() else tensor


def without_columns(tensor: torch.Tensor) -> torch.Tensor:
    """Size 0 in the last dimension."""
    return tensor[..., :0] if tensor.dim() > 1 else tensor


def one_element(tensor: torch.Tensor) -> torch.Tensor:
    """The first element, with no dimension."""
    return tensor.reshape(-1)[0] if tensor.dim() and tensor.numel() else tensor


def conjugate(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, stored conjugated and read through a lazy conjugate."""
    return torch.conj_physical(tensor).conj() if tensor.is_complex() else tensor


def negative(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, stored negated and read through a lazy negation."""
    possible = (tensor.is_complex() or tensor.is_floating_point()) and tensor.element_size() > 1
    return torch._neg_view(-tensor) if possible else tensor


LAYOUTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    with_gaps,
    transposed,
    with_offset,
    expanded,
    channels_last,
    without_rows,
    without_columns,
    one_element,
    conjugate,
    negative,
)


def geometry(tensor: torch.Tensor) -> tuple[object, ...]:
    return (*tensor.shape, *tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())


def laid_out(sample: Sample, layout: Callable[[torch.Tensor], torch.Tensor]) -> Sample | None:
    """The sample with every dense CPU tensor in that layout; None if that changes none of them."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            return tensor
        return layout(tensor.detach().resolve_conj().resolve_neg()).detach().requires_grad_(tensor.requires_grad)

    args, kwargs = map_tensors(change, sample.args), map_tensors(change, sample.kwargs)
    before, after = tensors_in((sample.args, sample.kwargs)), tensors_in((args, kwargs))
    dense = [(old, new) for old, new in zip(before, after, strict=True) if old.layout == torch.strided]
    if all(geometry(old) == geometry(new) for old, new in dense):
        return None
    return replace(sample, args=args, kwargs=kwargs)


def differentiable(case: Case, reference: str = "cpu") -> bool:
    op = OPERATORS[case.name]
    return op.supports_autograd and case.torch_dtype in op.supported_backward_dtypes(reference)


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    for layout in LAYOUTS:
        changed = laid_out(sample, layout)
        if changed is None:
            continue

        def forward(place: str, changed: Sample = changed):
            with torch.no_grad():
                return values.execute(case, changed, place, seed)

        def backward(place: str, changed: Sample = changed):
            return gradients.execute(case, changed, place, seed, order=1)

        yield Attempt(layout.__name__, two_runs(forward))
        if differentiable(case):
            yield Attempt(f"{layout.__name__}, backward", two_runs(backward))
