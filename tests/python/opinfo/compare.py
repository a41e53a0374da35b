"""Two runs of one call against each other: values bit for bit, what describes a tensor, and who shares memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from parity import difference, tensors_in

from .runs import Run, refusal_difference

#: For results that the reference itself does not repeat: |difference| <= ABSOLUTE + RELATIVE * |expected|.
RELATIVE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.float32: 1e-4, torch.complex64: 1e-4}
RELATIVE_OTHERS = 2e-2
ABSOLUTE = 1e-4

#: How strictly values are compared.
BITS, TOLERANCE, DESCRIPTION = "bits", "tolerance", "all_but_values"


@dataclass(frozen=True)
class Places:
    """Where the expected results come from, and the device under test."""

    reference: str = "cpu"
    device: str = "flagos"


@dataclass(frozen=True)
class Finding:
    """A difference: what kind of verdict it is (`wrong`, `error`, `input_changed`) and what was seen."""

    verdict: str
    text: str


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies in a storage: not a sparse one, nor one on meta, nor autograd's zero that is nowhere."""
    return tensor.layout == torch.strided and tensor.device.type != "meta" and not tensor._is_zerotensor()


def sharing(arguments: Any, result: Any) -> list[tuple[Any, ...]]:
    """For each tensor: which argument it is, which earlier tensor it shares memory with, and its place in that memory.

    The numbers are positions among the tensors, so two devices can be compared. Whether two results are one object or
    two over the same memory is not told: the gradients of a recurrent network's biases are one tensor on the CPU.
    """
    given = len(tensors_in(arguments))
    objects: dict[int, int] = {}
    memories: dict[Any, int] = {}
    found = []
    for i, tensor in enumerate(tensors_in((arguments, result))):
        same = objects.setdefault(id(tensor), i)
        if same >= given:
            same = i
        if not has_memory(tensor):
            found.append((same,))
            continue
        storage = tensor.untyped_storage()
        memory = memories.setdefault(storage.data_ptr() or -id(tensor), i)
        found.append((same, memory, tensor.storage_offset(), storage.nbytes(), tensor.is_conj(), tensor.is_neg()))
    return found


SHARING_FACTS = ("identity", "aliasing", "storage offset", "storage bytes", "conj bit", "neg bit")


def sharing_difference(actual: Run, expected: Run) -> str | None:
    """Where the tensors of `actual` share memory, or lie in it, otherwise than those of `expected`."""
    pairs = list(zip(*(sharing(run.arguments, run.result) for run in (actual, expected)), strict=True))
    for i, (found, wanted) in enumerate(pairs):
        for fact, have, want in zip(SHARING_FACTS, found, wanted, strict=False):
            if have != want:
                what = f"tensor {i} of arguments and results ({len(pairs)} in all)"
                return f"{fact} of {what}: {have}, expected {want}"
    return None


def tolerance_difference(actual: Any, expected: Any) -> str | None:
    """The first tensor whose values differ by more than the tolerance of its dtype; NaNs are equal."""
    for i, (found, wanted) in enumerate(zip(tensors_in(actual), tensors_in(expected), strict=True)):
        have, want = (tensor.detach().cpu().resolve_conj().resolve_neg() for tensor in (found, wanted))
        if not (have.is_floating_point() or have.is_complex()):
            have, want = have.to(torch.float64), want.to(torch.float64)
        relative = RELATIVE.get(want.dtype, RELATIVE_OTHERS)
        if have.shape == want.shape and not torch.allclose(have, want, relative, ABSOLUTE, equal_nan=True):
            return (
                f"tensor {i}: {have.flatten()[:5].tolist()}, expected {want.flatten()[:5].tolist()}, within tolerance"
            )
    return None


def compare(actual: Run, expected: Run, places: Places, values: str = BITS) -> Finding | None:
    """The first difference of the device's run from the reference's; None if they agree, or both refuse alike."""
    device, reference = places.device, places.reference
    if expected.error is not None:
        if actual.error is None:
            return Finding("wrong", f"no error, the reference raises {describe_error(expected.error)}")
        reason = refusal_difference(actual.error, expected.error, device=device, reference=reference)
        return Finding("error", reason) if reason else None
    if actual.error is not None:
        return Finding("error", describe_error(actual.error))

    def differs(found: Any, wanted: Any, path: str) -> str | None:
        return difference(found, wanted, device=device, values=values == BITS, path=path, reference=reference)

    if reason := differs(actual.result, expected.result, "result"):
        return Finding("wrong", reason)
    if reason := differs(actual.arguments, expected.arguments, "arguments after the call"):
        return Finding("input_changed", reason)
    for name in expected.facts.keys() & actual.facts.keys():
        wanted = expected.facts[name]
        if reason := differs(actual.facts[name], wanted, name):
            return Finding("wrong", reason)
    if values == TOLERANCE:
        pairs = [(r.result, r.arguments, r.facts) for r in (actual, expected)]
        if reason := tolerance_difference(*pairs):
            return Finding("wrong", reason)
    if reason := sharing_difference(actual, expected):
        return Finding("wrong", reason)
    if [category for category, _ in actual.warnings] != [category for category, _ in expected.warnings]:
        return Finding("wrong", f"warnings {actual.warnings}, expected {expected.warnings}")
    return None


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
