"""Matrix products: shapes, out=, transposed operands, half precision, gradients with partial masks."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.contract("operators")

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 7, 5), (64, 32, 48), (0, 3, 2), (3, 0, 2), (128, 1, 128)], ids=str)
def test_mm(dtype: torch.dtype, sizes: tuple[int, int, int], device: str) -> None:
    m, k, n = sizes
    a, b = sample(m, k, dtype=dtype), sample(k, n, dtype=dtype, seed=8)
    assert_same(torch.mm, a, b, device=device)
    assert_same(lambda a, b: torch.mm(a, b, out=torch.empty(m, n, dtype=dtype, device=a.device)), a, b, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)], ids=str)
def test_mm_of_transposed_and_strided(dtype: torch.dtype, transposed: tuple[bool, bool], device: str) -> None:
    a = sample(6, 9, dtype=dtype) if not transposed[0] else sample(9, 6, dtype=dtype).t()
    b = sample(9, 5, dtype=dtype) if not transposed[1] else sample(5, 9, dtype=dtype).t()
    assert_same(torch.mm, a, b, device=device)
    assert_same(torch.mm, a[::2], b[:, 1:], device=device)
    assert_same(
        lambda a, b: torch.mm(a, b, out=torch.empty(5, 6, dtype=dtype, device=a.device).t()), a, b, device=device
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (8, 16, 16, 16), (3, 5, 1, 2)], ids=str)
def test_bmm(dtype: torch.dtype, sizes: tuple[int, int, int, int], device: str) -> None:
    batch, m, k, n = sizes
    a, b = sample(batch, m, k, dtype=dtype), sample(batch, k, n, dtype=dtype, seed=8)
    assert_same(torch.bmm, a, b, device=device)
    assert_same(lambda a, b: torch.bmm(a, b.transpose(1, 2).contiguous().transpose(1, 2)), a, b, device=device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_attention_like_product(dtype: torch.dtype, device: str) -> None:
    q, k = sample(2, 4, 16, 8, dtype=dtype), sample(2, 4, 16, 8, dtype=dtype, seed=8)
    assert_same(lambda q, k: torch.matmul(q, k.transpose(-1, -2)), q, k, device=device)


@pytest.mark.parametrize(
    ("left", "right"),
    [((5,), (5,)), ((4, 5), (5,)), ((5,), (5, 3)), ((2, 4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 2))],
    ids=str,
)
def test_matmul_ranks(left, right, device: str) -> None:
    a, b = sample(*left, requires_grad=True), sample(*right, seed=8, requires_grad=True)
    assert_same(torch.matmul, a, b, device=device, backward=True)


@pytest.mark.parametrize("alpha", [1, 0, 0.5])
@pytest.mark.parametrize("beta", [1, 0, -2])
def test_add_products(alpha: float, beta: float, device: str) -> None:
    base, a, b = sample(4, 3), sample(4, 5), sample(5, 3, seed=8)
    assert_same(lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=beta), base, a, b, device=device)
    assert_same(lambda c, a, b: c.addmm_(a, b, alpha=alpha, beta=beta), base, a, b, device=device)
    assert_same(lambda c, a, b: torch.addmv(c[:, 0], a, b[:, 0], alpha=alpha, beta=beta), base, a, b, device=device)
    assert_same(
        lambda c, a, b: torch.baddbmm(c[None], a[None], b[None], alpha=alpha, beta=beta), base, a, b, device=device
    )
    assert_same(lambda c, a: c.addr(a[:, 0], c[0], alpha=alpha, beta=beta), base, a, device=device)


@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True)], ids=str)
def test_gradients_by_mask(mask: tuple[bool, bool], device: str) -> None:
    a, b = sample(6, 4, requires_grad=mask[0]), sample(4, 5, seed=8, requires_grad=mask[1])
    assert_same(torch.matmul, a, b, device=device, backward=True)


def test_retained_graph(device: str) -> None:
    def compute(a, b):
        product = (a @ b).sum()
        product.backward(retain_graph=True)
        first = a.grad.clone()
        product.backward()
        return first, a.grad, b.grad

    assert_same(compute, sample(3, 4, requires_grad=True), sample(4, 2, requires_grad=True), device=device)


def test_second_derivative(device: str) -> None:
    def compute(a, b):
        (gradient,) = torch.autograd.grad((a @ b).tanh().sum(), a, create_graph=True)
        return gradient, torch.autograd.grad(gradient.square().sum(), (a, b))

    assert_same(compute, sample(3, 4, requires_grad=True), sample(4, 2, requires_grad=True), device=device)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear(bias: bool, dtype: torch.dtype, device: str) -> None:
    x, w = sample(2, 7, 6, dtype=dtype, requires_grad=True), sample(5, 6, dtype=dtype, requires_grad=True)
    b = (sample(5, dtype=dtype, seed=8, requires_grad=True),) if bias else ()
    assert_same(torch.nn.functional.linear, x, w, *b, device=device, backward=True)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bkj->bik", "ii->i", "ij->", "i,j->ij"])
def test_einsum(equation: str, device: str) -> None:
    operands = [sample(*[4] * len(term), seed=number) for number, term in enumerate(equation.split("->")[0].split(","))]
    assert_same(lambda *operands: torch.einsum(equation, *operands), *operands, device=device)
