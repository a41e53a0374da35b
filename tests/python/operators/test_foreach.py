"""foreach operators over lists of 1 to 310 tensors: every output equals the CPU's."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.contract("operators")

LENGTHS = [1, 2, 17, 64, 310]
DTYPES = [torch.float32, torch.float16, torch.float64]

FOREACH = {
    "add scalar": lambda a, b: torch._foreach_add(a, 1.5),
    "add list": lambda a, b: torch._foreach_add(a, b, alpha=2),
    "add_ list": lambda a, b: torch._foreach_add_(a, b),
    "sub": lambda a, b: torch._foreach_sub(a, b),
    "mul list": lambda a, b: torch._foreach_mul(a, b),
    "mul_ scalar": lambda a, b: torch._foreach_mul_(a, 0.9),
    "mul scalars": lambda a, b: torch._foreach_mul(a, [float(i) for i in range(len(a))]),
    "mul tensor": lambda a, b: torch._foreach_mul(a, b[0].flatten()[0]),
    "div": lambda a, b: torch._foreach_div(a, [x.abs() + 1 for x in b]),
    "neg": lambda a, b: torch._foreach_neg(a),
    "abs": lambda a, b: torch._foreach_abs(a),
    "sqrt": lambda a, b: torch._foreach_sqrt(torch._foreach_abs(a)),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, a, b, value=0.5),
    "addcdiv_": lambda a, b: torch._foreach_addcdiv_(a, b, [x.abs() + 1 for x in b], value=-0.1),
    "norm": lambda a, b: torch._foreach_norm(a),
    "copy_": lambda a, b: torch._foreach_copy_(a, b),
    "zero_": lambda a, b: torch._foreach_zero_(a),
    "maximum": lambda a, b: torch._foreach_maximum(a, b),
    "clamp_min": lambda a, b: torch._foreach_clamp_min(a, 0.0),
    "pow": lambda a, b: torch._foreach_pow(a, 2),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FOREACH)
def test_foreach(name: str, dtype: torch.dtype, length: int, device: str) -> None:
    shapes = [(3, 2), (1,), (5,), (2, 1, 2)]
    a = [sample(*shapes[i % 4], dtype=dtype, seed=i) for i in range(length)]
    b = [sample(*shapes[i % 4], dtype=dtype, seed=1000 + i) for i in range(length)]
    assert_same(FOREACH[name], a, b, device=device)


@pytest.mark.parametrize("scale", [2.0, 1.0])
def test_non_finite_check(scale: float, device: str) -> None:
    def compute(grads, found, inverse):
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        return grads, found

    finite, infinite = sample(4), torch.tensor([1.0, float("inf")])
    for grads in ([finite], [finite, infinite]):
        assert_same(compute, grads, torch.zeros(1), torch.tensor([1 / scale]), device=device)


def test_clip_grad_norm(device: str) -> None:
    def compute(*parameters):
        for number, parameter in enumerate(parameters):
            parameter.grad = parameter.detach() * (number + 1)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        return norm, [parameter.grad for parameter in parameters]

    assert_same(compute, sample(3, requires_grad=True), sample(4, 2, requires_grad=True), device=device)
