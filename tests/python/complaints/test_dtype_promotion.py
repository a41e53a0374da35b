"""Complaint 5, dtype promotion and the dtype of results: all pairs of dtypes and categories, for many operators.

torch-xpu-ops#3457 (fp16 became bf16), torch-xpu-ops#2714 (f32 is not f64), torch-xpu-ops#4668 (a scalar lands on the
CPU), FlagGems#1144 (complex cannot fall back)
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from parity import difference, sample

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
SCALARS = (True, 3, 2.5, 1 + 2j)

BINARY = [
    "add",
    "sub",
    "mul",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "lt",
    "logical_and",
    "bitwise_and",
    "atan2",
    "hypot",
    "copysign",
    "nextafter",
    "xlogy",
    "heaviside",
    "gcd",
    "float_power",
    "ldexp",
    "logaddexp",
    "isclose",
    "dot",
]
OTHERS = {
    "where": lambda a, b: torch.where(torch.tensor([True, False, True], device=device_of(a, b)), a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "in place add": lambda a, b: a.clone().add_(b),
    "in place divide": lambda a, b: a.clone().div_(b),
    "out float64": lambda a, b: torch.mul(a, b, out=torch.empty(0, dtype=torch.float64, device=device_of(a, b))),
    "set item": lambda a, b: a.clone().__setitem__(..., b),
    "reflected": lambda a, b: (b - a, b / a if a.dtype == torch.float32 else b * a),
    "foreach": lambda a, b: torch._foreach_add([a, a], b),
    "clamp": lambda a, b: torch.clamp(a, min=b),
    "result_type": lambda a, b: torch.result_type(a, b),
    "can_cast": lambda a, b: torch.result_type(a, b).is_complex,
}
UNARY = {
    "sum": lambda a: a.sum(),
    "mean": lambda a: a.mean(),
    "prod": lambda a: a.prod(),
    "cumsum": lambda a: a.cumsum(0),
    "sqrt": lambda a: a.sqrt(),
    "exp": lambda a: a.exp(),
    "abs": lambda a: a.abs(),
    "angle": lambda a: a.angle(),
    "sum to float64": lambda a: a.sum(dtype=torch.float64),
    "softmax": lambda a: a.softmax(0),
    "norm": lambda a: torch.linalg.vector_norm(a),
    "var": lambda a: a.var(),
    "mm": lambda a: a[:, None] @ a[None],
    "tensor": lambda a: torch.tensor(a[0].item(), device=a.device),
    "new": lambda a: (a.new_zeros(2), a.new_tensor([1.5]), torch.full_like(a, 1)),
    "full": lambda a: torch.full((2,), a[0].item(), device=a.device),
    "item": lambda a: a[1].item(),
}


def device_of(*operands: Any) -> torch.device:
    return next(operand.device for operand in operands if isinstance(operand, torch.Tensor))


def outcome(compute: Any, *operands: Any) -> tuple[str, Any]:
    try:
        return "returned", compute(*operands)
    except (RuntimeError, TypeError, NotImplementedError, IndexError) as error:
        # A text may name the type of a tensor, which on the device has the device's name.
        text = re.sub(r"expand\([\w.]+\{", "expand({", str(error).splitlines()[0])
        return f"{type(error).__name__}: {text}", None


def agree(name: str, compute: Any, device: str, *operands: Any) -> None:
    described = [(x.dtype, tuple(x.shape)) if isinstance(x, torch.Tensor) else x for x in operands]
    expected, wanted = outcome(compute, *operands)
    moved = [x.to(device) if isinstance(x, torch.Tensor) else x for x in operands]
    actual, found = outcome(compute, *moved)
    if expected.endswith("INTERNAL ASSERT FAILED") or "INTERNAL ASSERT" in expected:
        assert actual != "returned", f"{name} of {described}: the CPU asserts, the device returned {found}"
        return
    assert actual == expected, f"{name} of {described}"
    if expected == "returned":
        assert not (reason := difference(found, wanted, device=device)), f"{name} of {described}: {reason}"


#: The pairs of categories that promotion tells apart.
SIZES = (((3,), (3,)), ((3,), ()), ((), (3,)), ((), ()))


@pytest.mark.parametrize("name", [*BINARY, *OTHERS])
def test_tensors_of_two_dtypes(name: str, device: str) -> None:
    compute = OTHERS.get(name) or getattr(torch, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for left in DTYPES:
            for right in DTYPES:
                for first, second in SIZES:
                    agree(name, compute, device, sample(*first, dtype=left), sample(*second, dtype=right, seed=3))


@pytest.mark.parametrize("name", [*BINARY, *OTHERS])
def test_tensor_and_python_number(name: str, device: str) -> None:
    compute = OTHERS.get(name) or getattr(torch, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            for size in ((3,), ()):
                for scalar in SCALARS:
                    agree(name, compute, device, sample(*size, dtype=dtype), scalar)


@pytest.mark.parametrize("name", UNARY)
def test_one_tensor(name: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            agree(name, UNARY[name], device, sample(3, dtype=dtype))


@pytest.mark.needs_flagos
@pytest.mark.parametrize("name", ["add", "mul", "true_divide", "pow", "eq", "where"])
def test_a_number_on_the_cpu_promotes_as_one_on_the_device(name: str, device: str) -> None:
    """A 0-dimensional CPU tensor beside a device tensor: its dtype counts as it does between two CPU tensors."""
    compute = OTHERS.get(name) or getattr(torch, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for left in DTYPES:
            for right in DTYPES:
                a, b = sample(3, dtype=left), sample(dtype=right, seed=3)
                expected, wanted = outcome(compute, a, b)
                actual, found = outcome(compute, a.to(device), b)
                assert actual == expected, (name, left, right)
                if expected == "returned":
                    assert not (reason := difference(found, wanted, device=device)), (name, left, right, reason)
