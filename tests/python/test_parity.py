"""The comparison that every other test rests on: it must see each kind of difference, and nothing else."""

from __future__ import annotations

import pytest
import torch
from parity import Mover, assert_same, difference, sample

NAN = float("nan")
SAME = {
    "values": (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    "NaN": (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0])),
    "NaN of other bits": (torch.tensor([NAN]), -torch.tensor([NAN])),
    "complex NaN": (torch.tensor([complex(NAN, 1)]), torch.tensor([complex(NAN, 1)])),
    "empty": (torch.empty(0, 3), torch.empty(0, 3)),
    "lazy conjugate": (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    "sparse": (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    "numbers": ([1, 2.5, "a", None], [1, 2.5, "a", None]),
    "half": (torch.tensor([0.5], dtype=torch.bfloat16), torch.tensor([0.5], dtype=torch.bfloat16)),
}
DIFFERENT = {
    "last bit": (torch.tensor([1.0]), torch.tensor([1.0]).nextafter(torch.tensor([2.0])), "values"),
    "sign of zero": (torch.tensor([0.0]), torch.tensor([-0.0]), "values"),
    "sign of zero of a number": (0.0, -0.0, "expected -0.0"),
    "NaN in one": (torch.tensor([NAN]), torch.tensor([1.0]), "values"),
    "real part": (torch.tensor([complex(1, NAN)]), torch.tensor([complex(2, NAN)]), "values"),
    "dtype": (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), "dtype"),
    "shape": (torch.zeros(2), torch.zeros(2, 1), "shape"),
    "stride": (torch.zeros(2, 3), torch.zeros(3, 2).t(), "stride"),
    "layout": (torch.eye(2), torch.eye(2).to_sparse(), "layout"),
    "gradient": (torch.zeros(1), torch.zeros(1, requires_grad=True), "requires_grad"),
    "bool that is not 0 or 1": (torch.tensor([2], dtype=torch.uint8).view(torch.bool), torch.tensor([True]), "values"),
    "integer": (torch.tensor([2**60]), torch.tensor([2**60 + 1]), "values"),
    "sparse values": (torch.eye(3).to_sparse(), (torch.eye(3) * 2).to_sparse(), "values"),
    "length": ([torch.zeros(1)], [torch.zeros(1)] * 2, "list of 1"),
    "type": ((torch.zeros(1),), [torch.zeros(1)], "tuple"),
    "not a tensor": (1.0, torch.zeros(()), "expected a tensor"),
    "device": (torch.zeros(1, device="meta"), torch.zeros(1), "on meta"),
    "inside": ({"a": [torch.zeros(1)]}, {"a": [torch.ones(1)]}, r"result\['a'\]\[0\]"),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    assert difference(*SAME[name], device="cpu") is None


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    import re

    actual, expected, words = DIFFERENT[name]
    reason = difference(actual, expected, device="cpu")
    assert reason is not None
    assert re.search(words, reason), reason


@pytest.mark.parametrize(
    ("what", "words"), [("result", "^result"), ("input", "inputs after the call"), ("gradient", "^gradients")]
)
def test_a_wrong_computation_fails(what: str, words: str) -> None:
    """The second of the two runs is made wrong in one place."""
    runs = []

    def compute(x: torch.Tensor) -> torch.Tensor:
        runs.append(x)
        wrong = len(runs) == 2
        if what == "input" and wrong:
            x.detach().add_(1)
            return torch.ones(3, requires_grad=True) * 1
        result = x * 2 if what != "input" else torch.ones(3, requires_grad=True) * 1
        if what == "gradient" and wrong:
            result.register_hook(lambda gradient: gradient * 3)
        return result + 1 if what == "result" and wrong else result

    with pytest.raises(AssertionError, match=words):
        assert_same(compute, sample(3, requires_grad=True), device="cpu", backward=True)


def test_mover_keeps_what_describes_a_tensor() -> None:
    base = sample(4, 6, dtype=torch.complex64)
    parts = [base, base[1:].t(), base.conj(), base.conj().imag, base[2:, 1:].detach().requires_grad_()]
    moved = Mover("cpu")(parts)
    for before, after in zip(parts, moved, strict=True):
        assert difference(after, before, device="cpu") is None
        assert (after.storage_offset(), after.is_conj(), after.is_neg()) == (
            before.storage_offset(),
            before.is_conj(),
            before.is_neg(),
        )
        assert after.data_ptr() != before.data_ptr()
    assert moved[0].untyped_storage().data_ptr() == moved[1].untyped_storage().data_ptr()
    moved[0].zero_()
    assert not moved[1].any()
    assert base.any()
