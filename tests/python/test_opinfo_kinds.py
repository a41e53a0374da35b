"""Each kind of test of the OpInfo harness finds the fault it is for: an operator that is wrong on the device alone."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from opinfo import cases
from opinfo.attempts import Question, Tally
from opinfo.cases import Case
from opinfo.compare import BITS, Places
from opinfo.harness import ATTEMPTS
from opinfo.samples import Sample
from parity import sample
from torch._subclasses.fake_tensor import FakeTensor

pytestmark = pytest.mark.needs_flagos
NAME = "planted"


def on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "flagos" and not isinstance(tensor, FakeTensor)


def operator(wrong: Any) -> Any:
    """neg, where the device's tensors get `wrong` instead; `out` is passed on only if it is given."""

    def call(tensor: torch.Tensor, **out: Any) -> Any:
        return wrong(tensor, **out) if on_device(tensor) else torch.neg(tensor, **out)

    def inplace(tensor: torch.Tensor) -> Any:
        return wrong(tensor) if on_device(tensor) else tensor.neg_()

    return SimpleNamespace(
        op=call,
        get_inplace=lambda: inplace,
        supports_autograd=True,
        supports_inplace_autograd=True,
        supported_backward_dtypes=lambda device: {torch.float32},
    )


def writes_past_the_counter(tensor: torch.Tensor) -> torch.Tensor:
    tensor.data.neg_()
    return tensor


def writes_elsewhere(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        return torch.neg(tensor)
    return out.set_(torch.neg(tensor))


def takes_any_dtype(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.neg(tensor)
    return result if out is None else out.resize_(result.shape).copy_(result)


def resizes_in_silence(tensor: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return torch.neg(tensor) if out is None else torch.neg(tensor, out=out.resize_(0))


def reads_memory_in_order(tensor: torch.Tensor) -> torch.Tensor:
    return torch.neg(torch.as_strided(tensor.detach(), tensor.shape, torch.empty(tensor.shape).stride()))


def forgets_the_negative_bit(tensor: torch.Tensor) -> torch.Tensor:
    return torch.neg(torch._neg_view(tensor) if tensor.is_neg() else tensor)


class Slope(torch.autograd.Function):
    """neg with a first derivative that is right and a second one that is not."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(tensor)
        return tensor.neg()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (tensor,) = context.saved_tensors
        return gradient.neg() + (tensor - tensor)


def raises(error: Exception) -> Any:
    def call(tensor: torch.Tensor) -> torch.Tensor:
        raise error

    return call


#: Kind of test, what the device does, and words of what must be found; None: nothing.
FAULTS = {
    "right": ("values", torch.neg, None),
    "view of the argument": ("values", lambda t: t.neg_().detach() if t.dim() else t, "arguments"),
    "the argument's memory": ("values", lambda t: torch._neg_view(t).view_as(t), "aliasing|neg bit"),
    "offset": ("values", lambda t: torch.cat([t.flatten(), t.flatten()]).neg()[6:].view(t.shape), "storage offset"),
    "right in place": ("inplace", torch.Tensor.neg_, None),
    "another object": ("inplace", lambda t: t.neg_().view_as(t), "identity"),
    "nothing written": ("inplace", lambda t: t.add_(0), "result"),
    "counter not moved": ("inplace", writes_past_the_counter, "version counters"),
    "right out": ("out", torch.neg, None),
    "out not written": ("out", lambda t, out=None: torch.neg(t) if out is None else out, "result"),
    "out moved": ("out", writes_elsewhere, "memory of out kept"),
    "cast that is refused": ("out", takes_any_dtype, "the reference raises|warnings"),
    "no warning": ("out", resizes_in_silence, "warnings"),
    "right layouts": ("layouts", torch.neg, None),
    "strides ignored": ("layouts", reads_memory_in_order, "values"),
    "negative bit ignored": ("layouts", forgets_the_negative_bit, "values"),
    "right gradient": ("backward", torch.neg, None),
    "gradient": ("backward", lambda t: torch.neg(t.detach()) + (t - t), "values"),
    "no gradient": ("backward", lambda t: torch.neg(t.detach()), "requires_grad"),
    "right second gradient": ("double_backward", torch.neg, None),
    "second gradient": ("double_backward", Slope.apply, "result"),
    "right description": ("meta", torch.neg, None),
    "dtype that fake tensors do not have": ("meta", lambda t: torch.neg(t).double(), "float64"),
    "shape that fake tensors do not have": ("meta", lambda t: torch.neg(t)[:1], r"\(1, 3\)"),
    "clean": ("leaks", torch.neg, None),
    "result on the CPU": ("leaks", lambda t: torch.neg(t).cpu(), "cpu"),
}


def findings(kind: str, wrong: Any, given: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a kind of test finds about the planted operator, given one sample."""
    monkeypatch.setitem(cases.OPERATORS, NAME, operator(wrong))
    question = Question(Places("cpu", "flagos"), BITS, Tally())
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempts = ATTEMPTS[kind](Case(NAME, kind, "float32"), Sample((given,), {}), 1)
            found = [attempt.check(question) for attempt in attempts]
    finally:
        torch.set_warn_always(False)
    assert question.tally.compared > 0
    return [finding.text for finding in found if finding]


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, wrong, words = FAULTS[fault]
    given = sample(2, 3, requires_grad=kind in ("layouts", "backward", "double_backward", "leaks"))
    found = findings(kind, wrong, given, monkeypatch)
    if words is None:
        assert not found
    else:
        assert any(re.search(words, text) for text in found), found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError('"neg" is not for Bool'), None),
        (ValueError('"neg" is not for Bool'), "the reference raises RuntimeError"),
        (RuntimeError("expected a tensor on cpu"), "names cpu"),
        (NotImplementedError("flagos: no kernel"), "the reference raises RuntimeError"),
    ],
)
def test_refusal_of_another_kind_is_found(error: Exception, words: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU refuses neg of a bool with a RuntimeError."""
    found = findings("errors", raises(error), sample(2, dtype=torch.bool), monkeypatch)
    assert (words in found[0]) if words else not found


def test_call_that_the_reference_refuses_must_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings("errors", torch.clone, sample(2, dtype=torch.bool), monkeypatch)
    assert "no error, the reference raises RuntimeError" in found[0]
