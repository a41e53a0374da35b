"""Kind `meta`: fake tensors of the device, and meta tensors, describe the result that the device gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from parity import map_tensors, tensors_in
from torch._subclasses.fake_tensor import FakeTensorMode

from opinfo.attempts import Attempt, Question
from opinfo.cases import Case
from opinfo.compare import Finding, describe_error
from opinfo.runs import Run, refusal_difference, run
from opinfo.samples import Sample, arguments_on, to_device

from . import values


def description(result: Any, device: bool) -> list[tuple[Any, ...]]:
    """Dtype, shape and strides of each tensor, and with `device` also the type of its device."""
    found = []
    for tensor in tensors_in(result):
        facts: tuple[Any, ...] = (str(tensor.dtype), tuple(tensor.shape), str(tensor.layout))
        if tensor.layout == torch.strided:
            facts += (tuple(tensor.stride()),)
        found.append((*facts, tensor.device.type) if device else facts)
    return found


def faked(case: Case, sample: Sample, place: str, seed: int) -> Run:
    """The call on fake tensors of `place`; the description of its result is taken while the mode is on."""
    written: dict[str, Any] = {}
    arguments = arguments_on(sample, place, case.name)
    call = values.caller(case, sample, place, written)
    with FakeTensorMode() as mode:
        fakes = map_tensors(mode.from_tensor, arguments)
        done = run(call, fakes, seed)
        done.result = description(done.result, device=True)
    return done


def on_meta(case: Case, sample: Sample, seed: int) -> Run:
    args = to_device(sample.args, "meta")
    kwargs = to_device(sample.kwargs, "meta")
    done = run(values.caller(case, sample, "meta", {}), (args, kwargs), seed)
    done.result = description(done.result, device=False)
    return done


class Real:
    """The call on the device and on the reference, made when it is first asked for."""

    def __init__(self, case: Case, sample: Sample, seed: int) -> None:
        self._made: dict[str, Run] = {}
        self._make = lambda place: values.execute(case, sample, place, seed)

    def on(self, place: str) -> Run:
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]


def check_fake(case: Case, sample: Sample, seed: int, real: Real) -> Any:
    def check(question: Question) -> Finding | None:
        places, tally = question.places, question.tally
        question.mark(True)
        actual = real.on(places.device)
        fake = faked(case, sample, places.device, seed)
        tally.compared += 1
        if actual.error is None and fake.error is None and description(actual.result, device=True) == fake.result:
            return None
        # Whatever is wrong about PyTorch's own description is wrong with the reference's tensors as well.
        question.mark(False)
        expected = real.on(places.reference)
        reference = faked(case, sample, places.reference, seed)
        if fake.error is not None or reference.error is not None:
            if fake.error is None or reference.error is None:
                told = [describe_error(r.error) if r.error else "no error" for r in (fake, reference)]
                return Finding("error", f"fake tensors: {told[0]}; those of the reference: {told[1]}")
            device, at_home = places.device, places.reference
            reason = refusal_difference(fake.error, reference.error, device=device, reference=at_home)
            tally.both_refuse += reason is None
            return Finding("error", f"fake tensors: {reason}") if reason else None
        where = {places.reference: places.device}
        described = [(*facts[:-1], where.get(facts[-1], facts[-1])) for facts in reference.result]
        if fake.result != described:
            return Finding("wrong", f"fake tensors: {fake.result}, those of the reference {described}")
        if (actual.error is None) != (expected.error is None):
            return Finding("error", f"the device: {actual.error!r}, the reference: {expected.error!r}")
        tally.reference_disagrees += 1
        return None

    return check


def check_meta(case: Case, sample: Sample, seed: int, real: Real) -> Any:
    def check(question: Question) -> Finding | None:
        places, tally = question.places, question.tally
        question.mark(True)
        actual = real.on(places.device)
        meta = on_meta(case, sample, seed)
        tally.compared += 1
        if actual.error is None and meta.error is None and description(actual.result, device=False) == meta.result:
            return None
        question.mark(False)
        expected = real.on(places.reference)
        if (actual.error is None) != (expected.error is None):
            return Finding("error", f"the device: {actual.error!r}, the reference: {expected.error!r}")
        described = [description(r.result, device=False) for r in (actual, expected)]
        if described[0] != described[1]:
            return Finding(
                "wrong", f"meta tensors: {meta.result}, the device: {described[0]}, reference {described[1]}"
            )
        # Meta tensors know nothing of the device, which agrees with the reference: they are wrong about both.
        tally.both_refuse += meta.error is not None
        tally.reference_disagrees += meta.error is None
        return None

    return check


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    real = Real(case, sample, seed)
    yield Attempt("fake tensors", check_fake(case, sample, seed, real))
    yield Attempt("meta tensors", check_meta(case, sample, seed, real))
