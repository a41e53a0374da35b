"""Kinds `backward` and `double_backward`: gradients of all inputs and parameters, from seeded output gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from parity import tensors_in

from opinfo.attempts import Attempt, two_runs
from opinfo.cases import Case
from opinfo.runs import Run, run
from opinfo.samples import Sample, arguments_on

from .values import caller, compared_arguments, module_state


def seeded_like(tensors: list[torch.Tensor], seed: int, requires_grad: bool = False) -> list[torch.Tensor]:
    """Normal numbers for each tensor, drawn on the CPU, so the same for each device."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for tensor in tensors:
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        drawn = torch.randn(tensor.shape, generator=generator, dtype=wide).to(tensor.dtype).to(tensor.device)
        found.append(drawn.requires_grad_(requires_grad))
    return found


def weighted_sum(roots: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
    """One number whose derivative with respect to each root is its weight.

    Note [One root]: an accelerator's nodes run backward in a thread of its own (on host that is switched off), and
    PyTorch's engine hands it the roots one by one while it is at work. With several roots the order in which gradients
    are added up is therefore a race; with one it is the graph's, on every device.
    """
    total = torch.zeros((), dtype=torch.float64, device=roots[0].device)
    for root, weight in zip(roots, weights, strict=True):
        term = (root * weight).sum()
        total = total + (term.real if term.is_complex() else term).to(torch.float64)
    return total


def differentiate(outputs: Any, leaves: list[torch.Tensor], seed: int) -> list[tuple[Any, ...]]:
    """Derivatives of `outputs` with respect to `leaves`, if there are any."""
    roots = differentiable_tensors(outputs)
    if not roots or not leaves:
        return []
    return [torch.autograd.grad(weighted_sum(roots, seeded_like(roots, seed)), leaves, allow_unused=True)]


def differentiate_twice(forward: Callable[[], Any], leaves: Callable[[], list[torch.Tensor]], seed: int) -> list[Any]:
    """What `forward()` returns, and the first and second derivatives with respect to `leaves()`.

    Note [Order of a graph]: PyTorch adds up gradients in the order of the nodes' numbers, and each thread numbers the
    nodes that it makes by itself. The nodes of a first derivative are made in backward: on the CPU by the thread that
    made those of the forward, so they come after them; for an accelerator by its backward thread, so in a long-lived
    process they come anywhere. Here forward begins at 0 in a fresh thread, the backward thread is beyond that since
    `go_ahead` was called in it, and the roots of the second derivative are given numbers above both.
    """

    def first_order() -> tuple[Any, list[torch.Tensor], list[torch.Tensor], Any]:
        output = forward()
        roots, inputs = differentiable_tensors(output), leaves()
        weights = seeded_like(roots, seed, requires_grad=True)
        if not roots or not inputs:
            return output, inputs, weights, ()
        first = torch.autograd.grad(weighted_sum(roots, weights), inputs, allow_unused=True, create_graph=True)
        return output, inputs, weights, first

    with ThreadPoolExecutor(1) as fresh:
        output, inputs, weights, first = fresh.submit(first_order).result()
    roots = differentiable_tensors(first)
    if not roots:
        return [output, first]
    go_ahead(1 + max(filter(lambda number: number < UNNUMBERED, map(number_of, roots)), default=0))
    total = weighted_sum(roots, seeded_like(roots, seed + 1))
    return [output, first, torch.autograd.grad(total, [*inputs, *weights], allow_unused=True)]


def number_of(tensor: torch.Tensor) -> int:
    return tensor.grad_fn._sequence_nr() if tensor.grad_fn is not None else 0


def go_ahead(number: int) -> None:
    """Makes nodes until this thread's next one has at least that number."""
    leaf = torch.ones((), requires_grad=True)
    while leaf.neg().grad_fn._sequence_nr() < number - 1:
        pass


class _GoAhead(torch.autograd.Function):
    """Runs `go_ahead` in the thread that runs backward on the device."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            go_ahead(NODES_BEFORE)
        return gradient


#: PyTorch gives nodes that must come first, such as those of leaves, a number from here on.
UNNUMBERED = 1 << 60
#: More nodes than the forward of any sample makes.
NODES_BEFORE = 20_000
_ahead: set[str] = set()


def send_backward_thread_ahead(place: str) -> None:
    """See Note [Order of a graph]; once for each device of a process."""
    if place not in _ahead and place != "cpu":
        _ahead.add(place)
        leaf = torch.ones((), device=place, requires_grad=True)
        torch.autograd.grad(_GoAhead.apply(leaf), leaf)


def differentiable_tensors(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(values) if tensor.requires_grad and tensor.layout == torch.strided]


def execute(case: Case, sample: Sample, place: str, seed: int, order: int) -> Run:
    written: dict[str, Any] = {}
    arguments = arguments_on(sample, place, case.name)
    forward = caller(case, sample, place, written)

    def leaves() -> list[torch.Tensor]:
        found = [tensor for tensor in tensors_in(arguments) if tensor.requires_grad]
        if "module" in written:
            found += [parameter for parameter in written["module"].parameters() if parameter.requires_grad]
        return found

    def once(arguments: Any) -> Any:
        output = forward(arguments)
        return output, differentiate(sample.reduce(output), leaves(), seed)

    def twice(arguments: Any) -> Any:
        send_backward_thread_ahead(place)
        return differentiate_twice(lambda: sample.reduce(forward(arguments)), leaves, seed)

    done = run(once if order == 1 else twice, arguments, seed)
    done.facts |= module_state(written)
    done.arguments = compared_arguments(case, arguments)
    return done


def attempts_of_order(order: int) -> Callable[[Case, Sample, int], Iterator[Attempt]]:
    def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
        yield Attempt("gradients", two_runs(lambda place: execute(case, sample, place, seed, order)))

    return attempts
