"""Kind `out`: the `out=` argument, right and wrong in every way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from parity import Mover, tensors_in

from opinfo.attempts import Attempt, Question, two_runs
from opinfo.cases import OPERATORS, Case
from opinfo.compare import Finding, Places, compare
from opinfo.runs import Run, run
from opinfo.samples import Sample, arguments_on, to_device

from . import values
from .layouts import with_gaps

#: What an `out` holds before the call: a result that is not written stays visible.
POISON = 77
#: A dtype that the result may be cast to.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.float64: torch.complex128,
    torch.complex32: torch.complex64,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex64,
    torch.bool: torch.int32,
}


def poisoned(shape: Any, dtype: torch.dtype, stride: Any = None) -> torch.Tensor:
    made = torch.empty(shape, dtype=dtype) if stride is None else torch.empty_strided(shape, stride, dtype=dtype)
    return made.fill_(1 if dtype == torch.bool else POISON)


def right(result: torch.Tensor) -> torch.Tensor:
    return poisoned(result.shape, result.dtype, result.stride())


def gaps(result: torch.Tensor) -> torch.Tensor:
    return with_gaps(poisoned(result.shape, result.dtype))


def wrong_shape(result: torch.Tensor) -> torch.Tensor:
    shape = (result.shape[0] + 1, *result.shape[1:]) if result.dim() else (3,)
    return poisoned(shape, result.dtype)


def empty(result: torch.Tensor) -> torch.Tensor:
    return poisoned(0, result.dtype)


def wider_dtype(result: torch.Tensor) -> torch.Tensor:
    return poisoned(result.shape, WIDER.get(result.dtype, torch.float32))


def narrower_dtype(result: torch.Tensor) -> torch.Tensor:
    """A kind of number that the result may not be cast to; a bool may be cast to anything."""
    inexact = result.is_floating_point() or result.is_complex()
    return poisoned(result.shape, torch.int64 if inexact else torch.bool)


def overlapping_itself(result: torch.Tensor) -> torch.Tensor:
    return poisoned((), result.dtype).expand(result.shape)


OUTS = (right, gaps, wrong_shape, empty, wider_dtype, narrower_dtype, overlapping_itself)


def execute(case: Case, arguments: tuple[Any, Any, Any], seed: int) -> Run:
    """`arguments` are (args, kwargs, out), all on one device. Where `out` has its memory afterwards is a fact."""
    op = OPERATORS[case.name].op
    outs = tensors_in(arguments[2])
    pointers, shapes = [out.data_ptr() for out in outs], [out.shape for out in outs]
    done = run(lambda a: op(*a[0], **a[1], out=a[2]), arguments, seed, keep_warnings=True)
    done.facts["memory of out kept"] = [out.data_ptr() == before for out, before in zip(outs, pointers, strict=True)]
    if [out.shape for out in outs] != shapes:
        # PyTorch resizes an `out` in a composite by a call on every device but the CPU, which counts once more.
        del done.facts["version counters of the arguments"]
    return done


def expected_result(case: Case, sample: Sample, question: Question, seed: int, known: list[Any]) -> Any:
    """The functional result on the reference, as CPU tensors; None if there is nothing that `out` could hold.

    Kept in `known`, which all attempts with a sample share.
    """
    if not known:
        question.mark(False)
        known.append(holdable(values.execute(case, sample, question.places.reference, seed).result))
    return known[0]


def holdable(result: Any) -> Any:
    """`result` as CPU tensors, if it is a dense tensor or a tuple of those; else None."""
    tensors = tensors_in(result)
    if not tensors or any(tensor.layout != torch.strided for tensor in tensors):
        return None
    if isinstance(result, torch.Tensor):
        return result.detach().cpu()
    if not isinstance(result, tuple) or len(tensors) != len(result):
        return None
    return tuple(tensor.detach().cpu() for tensor in tensors)


def made_like(result: Any, make: Any) -> Any:
    return make(result) if isinstance(result, torch.Tensor) else tuple(map(make, result))


def on_place(sample: Sample, out: Any, place: str) -> tuple[Any, Any, Any]:
    """Sample and `out` on one device; memory they share stays shared."""
    mover = Mover(place)
    return (
        to_device(sample.args, place, mover=mover),
        to_device(sample.kwargs, place, mover=mover),
        to_device(out, place, mover=mover),
    )


def check_with(case: Case, sample: Sample, seed: int, known: list[Any], make: Any) -> Any:
    def check(question: Question) -> Finding | None:
        result = expected_result(case, sample, question, seed, known)
        if result is None:
            return None
        out = made_like(result, make)
        return two_runs(lambda place: execute(case, on_place(sample, out, place), seed))(question)

    return check


def shared_with_input(sample: Sample, result: Any, distance: int) -> tuple[Sample, torch.Tensor] | None:
    """The sample with its first argument in a buffer, and an `out` that starts `distance` elements behind it."""
    first = sample.args[0] if sample.args else None
    if not isinstance(first, torch.Tensor) or not isinstance(result, torch.Tensor) or result.numel() <= distance:
        return None
    if (first.shape, first.dtype, first.layout) != (result.shape, result.dtype, result.layout):
        return None
    buffer = first.new_zeros(first.numel() + distance)
    moved = buffer[: first.numel()].view(first.shape).copy_(first)
    out = buffer[distance:].view(first.shape)
    return Sample((moved, *sample.args[1:]), sample.kwargs), out


def check_shared(case: Case, sample: Sample, seed: int, known: list[Any], distance: int) -> Any:
    def check(question: Question) -> Finding | None:
        result = expected_result(case, sample, question, seed, known)
        shared = shared_with_input(sample, result, distance) if result is not None else None
        if shared is None:
            return None
        return two_runs(lambda place: execute(case, on_place(*shared, place), seed))(question)

    return check


def check_foreign(case: Case, sample: Sample, seed: int, known: list[Any]) -> Any:
    """`out` on the CPU beside device arguments: refused with a RuntimeError, or written rightly by a composite."""

    def check(question: Question) -> Finding | None:
        places = question.places
        result = expected_result(case, sample, question, seed, known)
        if result is None or places.device == "cpu":
            return None
        question.mark(True)
        args, kwargs = arguments_on(sample, places.device, case.name)
        out = made_like(result, right)
        actual = execute(case, (args, kwargs, out), seed)
        question.tally.compared += 1
        if isinstance(actual.error, (RuntimeError, TypeError)):
            question.tally.both_refuse += 1
            return None
        if actual.error is not None:
            return Finding("error", f"out on the CPU: {type(actual.error).__name__}: {actual.error}")
        done, wanted = (Run(value, arguments=()) for value in (out, result))
        found = compare(done, wanted, Places("cpu", "cpu"), question.values)
        return Finding(found.verdict, f"out on the CPU was accepted: {found.text}") if found else None

    return check


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    if sample.kwargs.get("out") is not None:
        return
    known: list[Any] = []
    for make in OUTS:
        yield Attempt(make.__name__, check_with(case, sample, seed, known, make))
    yield Attempt("out is the input", check_shared(case, sample, seed, known, 0))
    yield Attempt("out overlaps the input", check_shared(case, sample, seed, known, 1))
    yield Attempt("out on the CPU", check_foreign(case, sample, seed, known))
