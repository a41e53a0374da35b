"""Every OpInfo of the installed torch, four dtypes, first samples: the device must agree with the CPU bit for bit."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any

import pytest
import torch
from parity import Mover, difference, seed_generators, tensors_in
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
SAMPLES_PER_DTYPE = 6

#: Operators whose values nobody defines: what describes the tensor must still agree.
UNDEFINED_VALUES = {
    "empty": "uninitialised memory",
    "empty_like": "uninitialised memory",
    "empty_permuted": "uninitialised memory",
    "empty_strided": "uninitialised memory",
    "new_empty": "uninitialised memory",
    "new_empty_strided": "uninitialised memory",
    "resize_": "the new part is uninitialised memory",
    "resize_as_": "the new part is uninitialised memory",
}

#: Operators where the CPU does not repeat its own bits: compared within a tolerance.
CPU_NOT_REPEATABLE = {
    "linalg.lstsq": "driver gelsy starts from a pivot array that the CPU kernel does not initialise",
    "linalg.lstsq.grad_oriented": "driver gelsy starts from a pivot array that the CPU kernel does not initialise",
}

#: Differences that are known and accepted, each with its cause. A listed operator that agrees fails the test.
LISTED_DIFFERENCES: dict[str, str] = {
    "sparse.mm.reduce": "sparse layouts are refused with a NotImplementedError that names operator and layout",
    "sparse.sampled_addmm": "sparse layouts are refused with a NotImplementedError that names operator and layout",
    "tensor_split": "the samples' index tensors move to the device too, and torch wants them on the CPU, as on CUDA",
    "to_sparse": "sparse layouts are refused with a NotImplementedError that names operator and layout",
}


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def move_sample(value: Any, mover: Mover, device: str) -> Any:
    """`value` with its tensors copied by `mover` and every mention of the CPU replaced by `device`."""
    if isinstance(value, torch.Tensor):
        return mover(value)
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device(device) if isinstance(value, torch.device) else device
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move_sample(item, mover, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(move_sample(item, mover, device) for item in value)
    if isinstance(value, dict):
        return {key: move_sample(item, mover, device) for key, item in value.items()}
    return value


def run_sample(op: Any, sample: Any, device: str, seed: int) -> tuple[Any, Any]:
    """The operator's result on copies of the sample, and those copies after the call."""
    arguments = move_sample((sample.input, tuple(sample.args), dict(sample.kwargs)), Mover(device), device)
    first, args, kwargs = arguments
    seed_generators(seed)
    return op(first, *args, **kwargs), arguments


def compare_sample(op: Any, sample: Any, device: str, seed: int) -> str | None:
    try:
        expected, expected_inputs = run_sample(op, sample, "cpu", seed)
    except Exception as refusal:  # noqa: BLE001  (whatever the CPU raises, the device must raise as well)
        try:
            run_sample(op, sample, device, seed)
        except Exception:  # noqa: BLE001
            return None
        return f"no error, the CPU raises {type(refusal).__name__}: {refusal}"
    try:
        actual, actual_inputs = run_sample(op, sample, device, seed)
    except Exception as error:  # noqa: BLE001  (reported with the sample that provoked it)
        return f"{type(error).__name__}: {error}"
    values = name_of(op) not in UNDEFINED_VALUES and name_of(op) not in CPU_NOT_REPEATABLE
    if name_of(op) in CPU_NOT_REPEATABLE:
        found, wanted = (torch.cat([t.cpu().flatten() for t in tensors_in(r)]) for r in (actual, expected))
        if not torch.allclose(found, wanted, rtol=1e-4, atol=1e-4):
            return f"{found.tolist()}, expected {wanted.tolist()}"
    return difference(actual, expected, device=device, values=values) or difference(
        actual_inputs, expected_inputs, device=device, values=values, path="inputs after the call"
    )


def differences_of(op: Any, device: str) -> list[str]:
    found = []
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        seed_generators(11)
        # op.sample_inputs would wrap these in an iterator that inspects the whole call stack for each operator.
        samples = list(islice(op.sample_inputs_func(op, "cpu", dtype, requires_grad=False), SAMPLES_PER_DTYPE))
        for number, sample in enumerate(samples):
            if reason := compare_sample(op, sample, device, seed=100 + number):
                found.append(f"{dtype} sample {number}: {reason}\n    {sample.summary()}")
    return found


@pytest.mark.contract("operators")
@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_agrees_with_cpu(op: Any, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = differences_of(op, device)
    cause = LISTED_DIFFERENCES.get(name_of(op)) if device != "cpu" else None
    if cause and not found:
        pytest.fail(f"agrees now; remove it from LISTED_DIFFERENCES ({cause})")
    if cause:
        pytest.xfail(f"{cause}: {found[0]}")
    assert not found, "\n".join(found)


def test_listed_operators_exist() -> None:
    known = {name_of(op) for op in op_db} | {op.name for op in op_db}
    assert not (UNDEFINED_VALUES.keys() | CPU_NOT_REPEATABLE.keys() | LISTED_DIFFERENCES.keys()) - known
