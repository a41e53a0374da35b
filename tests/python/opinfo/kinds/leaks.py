"""Kind `leaks`: every tensor that comes back is on the device, and all memory of the device is given back."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import torch
from parity import tensors_in

from opinfo.attempts import Attempt, Question
from opinfo.cases import Case
from opinfo.compare import Finding, has_memory
from opinfo.samples import Sample

from . import gradients

#: How long memory may take to come back: PyTorch's backward threads let go of a graph a moment after it has run.
PATIENCE_SECONDS = 2.0
COLLECT_AFTER_SECONDS = 0.05


def allocated(device: str) -> int:
    """Bytes in use on the device; 0 where nobody counts them."""
    if device == "cpu":
        return 0
    # Torch's Python function sorts every statistic by name first.
    return torch._C._accelerator_getDeviceStats(0)["allocated_bytes"]["all"]["current"]


def foreign(values: Any, device: str) -> str | None:
    """The first tensor of `values` that is not on `device`, or whose storage is not."""
    kind = torch.device(device).type
    for i, tensor in enumerate(tensors_in(values)):
        where = [tensor.device] + ([tensor.untyped_storage().device] if has_memory(tensor) else [])
        if any(place.type != kind for place in where):
            return f"tensor {i} of {len(tensors_in(values))} is on {where}"
    return None


def wait_until_free(device: str) -> int:
    """Bytes that are still in use after collecting garbage and waiting; a worker holds nothing between samples."""
    begun = time.monotonic()
    while (left := allocated(device)) and (passed := time.monotonic() - begun) < PATIENCE_SECONDS:
        time.sleep(0.0001 if passed < COLLECT_AFTER_SECONDS else 0.01)
        if passed > COLLECT_AFTER_SECONDS:
            gc.collect()
    return left


def check_leaks(case: Case, sample: Sample, seed: int) -> Any:
    def check(question: Question) -> Finding | None:
        device = question.places.device
        question.mark(True)
        before = wait_until_free(device)  # what an earlier sample leaked was charged to it
        done = gradients.execute(case, sample, device, seed, order=1)
        question.tally.compared += 1
        question.tally.both_refuse += done.error is not None
        reason = foreign((done.result, done.arguments), device)
        during = allocated(device) - before
        charged = sum(t.untyped_storage().nbytes() for t in tensors_in(done.arguments) if has_memory(t))
        del done
        left = wait_until_free(device) - before
        if reason:
            return Finding("wrong", reason)
        if left > 0:  # less: what an earlier sample held came back meanwhile
            return Finding("wrong", f"{left} bytes more than before are in use ({during} during the call)")
        if charged and during == 0 and device != "cpu":
            return Finding("wrong", f"memory_allocated says {during} with {charged} bytes in use")
        return None

    return check


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    yield Attempt("memory", check_leaks(case, sample, seed))
