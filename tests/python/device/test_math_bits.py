"""Lazy conjugate and negative: views stay lazy, and everything that reads one reads the right values."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, assert_same, sample

pytestmark = pytest.mark.contract("math_bits")

COMPLEX = [torch.complex128, torch.complex64]

CONSUMERS = {
    "resolve_conj": lambda x: x.resolve_conj(),
    "resolve_neg": lambda x: x.resolve_neg(),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "conj_physical": lambda x: x.conj_physical(),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "copy_ to another dtype": lambda x: torch.empty(x.shape, dtype=torch.complex128, device=x.device).copy_(x),
    "to": lambda x: x.to(torch.complex128),
    "add": lambda x: x + 1,
    "mul": lambda x: x * x,
    "abs": lambda x: x.abs(),
    "sum": lambda x: x.sum(),
    "mm": lambda x: x @ x,
    "mm transposed": lambda x: x.mT @ x,
    "dot": lambda x: torch.dot(x[0], x[1]),
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "addmm": lambda x: torch.addmm(x, x, x),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x.resolve_conj()]),
    "index": lambda x: x[torch.tensor([0, 2])],
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "view_as_real": lambda x: torch.view_as_real(x.resolve_conj()),
    "transpose": lambda x: x.t(),
    "slice": lambda x: x[1:],
    "triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=True),
    "fft": lambda x: torch.fft.fft(x),
    "equal": lambda x: torch.equal(x, x.resolve_conj()),
    "item": lambda x: x[0, 0].item(),
    "tolist": lambda x: x.tolist(),
    "foreach": lambda x: torch._foreach_add([x], 1),
}


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", CONSUMERS)
def test_conjugate(name: str, dtype: torch.dtype, device: str) -> None:
    x = sample(3, 3, dtype=dtype)
    assert_same(lambda x: CONSUMERS[name](x.conj()), x, device=device)


NEGATIVE = {
    "resolve_neg": lambda x: x.resolve_neg(),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "add": lambda x: x + 1,
    "abs": lambda x: x.abs(),
    "mm": lambda x: x @ x,
    "sum": lambda x: x.sum(),
    "item": lambda x: x[0, 0].item(),
    "to": lambda x: x.to(torch.float64),
    "repeat_interleave": lambda x: torch.repeat_interleave(x[0], 2),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative(name: str, device: str) -> None:
    assert_same(lambda x: NEGATIVE[name](torch._neg_view(x)), sample(3, 3), device=device)


@pytest.mark.parametrize("name", NEGATIVE)
def test_imaginary_part_of_a_conjugate(name: str, device: str) -> None:
    assert_same(lambda x: NEGATIVE[name](x.conj().imag), sample(3, 3, dtype=torch.complex64), device=device)


def test_views_stay_lazy(device: str) -> None:
    x = sample(3, dtype=torch.complex64).to(device)
    conjugate = x.conj()
    assert conjugate.is_conj()
    assert conjugate.data_ptr() == x.data_ptr()
    assert conjugate[1:].is_conj()
    assert not conjugate.conj().is_conj()
    assert conjugate.imag.is_neg()
    negative = torch._neg_view(sample(3).to(device))
    assert negative.is_neg()
    assert not negative.resolve_neg().is_neg()
    assert not x.resolve_conj().is_conj()


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_copies_between_places(dtype: torch.dtype, device: str) -> None:
    x = sample(3, 4, dtype=dtype)
    assert_equal(x.to(device).conj().cpu().resolve_conj(), x.conj().resolve_conj(), "cpu")
    assert_equal(x.conj().to(device).resolve_conj(), x.conj().resolve_conj(), device)
    assert_equal(torch.empty(3, 4, dtype=dtype).copy_(x.to(device).conj()), x.conj().resolve_conj(), "cpu")
    assert_equal(torch.empty(3, 4, dtype=dtype, device=device).copy_(x.conj()), x.conj().resolve_conj(), device)
    y = sample(3, 4)
    assert_equal(torch._neg_view(y.to(device)).cpu().resolve_neg(), -y, "cpu")
    assert_equal(torch._neg_view(y).to(device).resolve_neg(), -y, device)


def test_copies_between_devices(device: str, second_device: str) -> None:
    x = sample(3, dtype=torch.complex128)
    assert torch.equal(x.to(device).conj().to(second_device).cpu(), x.conj())


def test_writing_through_lazy_views(device: str) -> None:
    def compute(x, y):
        x.conj().copy_(y)
        x.conj()[0] = 1 + 2j
        x.imag.mul_(3)
        x.conj().imag.add_(1)
        x.conj().mul_(y)
        return x

    assert_same(compute, sample(4, dtype=torch.complex64), sample(4, dtype=torch.complex64, seed=8), device=device)


def test_lazy_out(device: str) -> None:
    assert_same(
        lambda x, out: torch.mul(x, 2, out=out.conj()),
        sample(4, dtype=torch.complex64),
        sample(4, dtype=torch.complex64),
        device=device,
    )


def test_both_bits(device: str) -> None:
    x = sample(3, 3, dtype=torch.complex64)
    assert_same(lambda x: (torch._neg_view(x.conj()) @ x.conj(), torch._neg_view(x.conj()).clone()), x, device=device)


def test_plain_copies_are_unaffected(device: str) -> None:
    x = sample(3, dtype=torch.complex64)
    moved = x.to(device)
    assert not moved.is_conj()
    assert not moved.is_neg()
    assert torch.equal(moved.clone().cpu(), x)


@pytest.mark.parametrize("conjugate", [False, True])
def test_gradients(conjugate: bool, device: str) -> None:
    x = sample(3, 3, dtype=torch.complex64, requires_grad=True)
    assert_same(lambda x: ((x.conj() if conjugate else x) @ x).abs(), x, device=device, backward=True)


@pytest.mark.contract("math_bits")
@pytest.mark.parametrize("adjoint", [False, True])
def test_a_kernel_that_conjugates_its_output_lazily(device: str, adjoint: bool) -> None:
    """`lu_solve` from the right conjugates what it has written by the bit alone."""
    matrix = torch.randn(3, 3, dtype=torch.complex64) + 3 * torch.eye(3)
    right = torch.randn(2, 3, dtype=torch.complex64)

    def solve(place: str) -> torch.Tensor:
        factors, pivots = torch.linalg.lu_factor(matrix.to(place))
        out = torch.empty(2, 3, dtype=torch.complex64, device=place)
        torch.linalg.lu_solve(factors, pivots, right.to(place), left=False, adjoint=adjoint, out=out)
        return out

    expected, found = solve("cpu"), solve(device)
    assert found.is_conj() == expected.is_conj()
    assert torch.equal(found.cpu(), expected)
