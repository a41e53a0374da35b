"""Kind `inplace`: the in-place variant, on a tensor, on a view of a larger one, and differentiated through a view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from parity import tensors_in

from opinfo.attempts import Attempt, two_runs
from opinfo.cases import OPERATORS, Case
from opinfo.runs import Run, run
from opinfo.samples import Sample, arguments_on

from .gradients import differentiate


def execute(case: Case, sample: Sample, place: str, seed: int) -> Run:
    """That the argument itself comes back, and its version counter, are compared by every run."""
    inplace = OPERATORS[case.name].get_inplace()
    return run(lambda a: inplace(*a[0], **a[1]), arguments_on(sample, place, case.name), seed)


def with_base(sample: Sample) -> Sample:
    """The first argument as row 1 of a base of three rows."""
    first = sample.args[0].detach()
    base = torch.stack([torch.zeros_like(first), first.resolve_conj().resolve_neg(), torch.zeros_like(first)])
    return replace(sample, args=(base.contiguous(), *sample.args[1:]))


def execute_on_view(case: Case, sample: Sample, place: str, seed: int) -> Run:
    """Writes to a view; the base, an argument of the run, is compared afterwards with its version counter."""
    inplace = OPERATORS[case.name].get_inplace()

    def call(arguments: Any) -> Any:
        (base, *rest), kwargs = arguments
        row = base[1]
        result = inplace(row, *rest, **kwargs)
        return result, result is row, row._base is base, row._version

    return run(call, arguments_on(sample, place, case.name), seed)


def execute_gradient(case: Case, sample: Sample, place: str, seed: int) -> Run:
    """Writes to a view of a copy of the first argument and differentiates the copy."""
    inplace = OPERATORS[case.name].get_inplace()

    def call(arguments: Any) -> Any:
        (first, *rest), kwargs = arguments
        copy = first.clone()
        inplace(copy.view_as(copy), *rest, **kwargs)
        leaves = [tensor for tensor in tensors_in(arguments) if tensor.requires_grad]
        return copy, differentiate(sample.reduce(copy), leaves, seed)

    return run(call, arguments_on(sample, place, case.name), seed)


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    op = OPERATORS[case.name]
    if not isinstance(sample.args[0], torch.Tensor) or sample.args[0].layout != torch.strided:
        return
    first = sample.args[0]
    plain = replace(sample, args=(first.detach(), *sample.args[1:]))

    def directly(place: str) -> Run:
        with torch.no_grad():
            return execute(case, plain, place, seed)

    based = with_base(sample)

    def on_view(place: str) -> Run:
        with torch.no_grad():
            return execute_on_view(case, based, place, seed)

    yield Attempt("in place", two_runs(directly))
    yield Attempt("in place on a view", two_runs(on_view))
    if first.requires_grad:
        yield Attempt("on a leaf that requires a gradient", two_runs(lambda p: execute(case, sample, p, seed)))
        if op.supports_inplace_autograd and not sample.broadcasts:
            yield Attempt(
                "gradient through a view", two_runs(lambda place: execute_gradient(case, sample, place, seed))
            )
