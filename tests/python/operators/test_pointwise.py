"""Element-wise operators: functional, in-place and out= spellings over shapes and dtypes, equal to the CPU."""

from __future__ import annotations

import contextlib

import pytest
import torch
from parity import assert_same, sample

pytestmark = pytest.mark.contract("operators")

SHAPES = [(), (1,), (0, 3), (128, 256), (16, 33, 7)]
FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
NUMBERS = (*FLOATING, torch.int32, torch.int64)

UNARY = {
    "abs": NUMBERS,
    "neg": NUMBERS,
    "sign": NUMBERS,
    "square": NUMBERS,
    "sin": FLOATING,
    "cos": FLOATING,
    "tan": FLOATING,
    "tanh": FLOATING,
    "exp": FLOATING,
    "expm1": FLOATING,
    "erf": FLOATING,
    "sqrt": FLOATING,
    "rsqrt": FLOATING,
    "log": FLOATING,
    "log1p": FLOATING,
    "log2": FLOATING,
    "reciprocal": FLOATING,
    "sigmoid": FLOATING,
    "floor": FLOATING,
    "ceil": FLOATING,
    "trunc": FLOATING,
    "round": FLOATING,
    "bitwise_not": (torch.int32, torch.int64, torch.bool, torch.uint8),
    "logical_not": (torch.float32, torch.int32, torch.bool),
}
UNARY_CASES = [(name, dtype) for name, dtypes in UNARY.items() for dtype in dtypes]

BINARY = {
    "add": NUMBERS,
    "sub": NUMBERS,
    "mul": (*NUMBERS, torch.bool),
    "div": FLOATING,
    "pow": FLOATING,
    "atan2": FLOATING,
    "maximum": NUMBERS,
    "minimum": NUMBERS,
    "fmod": FLOATING,
    "remainder": FLOATING,
    "eq": (*NUMBERS, torch.bool),
    "ne": NUMBERS,
    "lt": NUMBERS,
    "ge": NUMBERS,
    "logical_and": (torch.float32, torch.bool),
    "bitwise_xor": (torch.int32, torch.bool),
}
BINARY_CASES = [(name, dtype) for name, dtypes in BINARY.items() for dtype in dtypes]
BROADCASTS = [((3, 4), (3, 4)), ((3, 1, 5), (4, 1)), ((2, 3), ()), ((0, 3), (1, 3)), ((128, 64), (64,))]


@pytest.mark.parametrize(("name", "dtype"), UNARY_CASES, ids=str)
def test_unary(name: str, dtype: torch.dtype, device: str) -> None:
    function = getattr(torch, name)
    for shape in SHAPES:
        x = sample(*shape, dtype=dtype)
        assert_same(function, x, device=device)
        assert_same(lambda x, function=function: function(x, out=torch.empty_like(function(x))), x, device=device)
        if hasattr(torch.Tensor, f"{name}_"):
            in_place = getattr(torch.Tensor, f"{name}_")
            assert_same(lambda x, in_place=in_place: (in_place(x) is x, x), x, device=device)


@pytest.mark.parametrize(("name", "dtype"), BINARY_CASES, ids=str)
def test_binary(name: str, dtype: torch.dtype, device: str) -> None:
    function = getattr(torch, name)
    in_place = getattr(torch.Tensor, f"{name}_", None)
    for left, right in BROADCASTS:
        a, b = sample(*left, dtype=dtype), sample(*right, dtype=dtype, seed=8)
        assert_same(function, a, b, device=device)
        assert_same(
            lambda a, b, function=function: function(a, b, out=torch.empty_like(function(a, b))), a, b, device=device
        )
        if in_place and torch.broadcast_shapes(left, right) == torch.Size(left):
            assert_same(lambda a, b, in_place=in_place: (in_place(a, b) is a, a), a, b, device=device)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_silu_and_its_gradient(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    x = sample(*shape, dtype=dtype, requires_grad=True)
    assert_same(torch.nn.functional.silu, x, device=device, backward=True)


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda a, b: torch.add(a, b, alpha=2.5), id="add alpha"),
        pytest.param(lambda a, b: torch.sub(a, b, alpha=-3), id="sub alpha"),
        pytest.param(lambda a, b: a.add_(b, alpha=0.5), id="add_ alpha"),
        pytest.param(lambda a, b: torch.add(a, b, alpha=2, out=torch.empty_like(a)), id="add out alpha"),
        pytest.param(lambda a, b: torch.div(a, b, rounding_mode="floor"), id="div floor"),
        pytest.param(lambda a, b: torch.div(a, b, rounding_mode="trunc"), id="div trunc"),
        pytest.param(lambda a, b: torch.addcmul(a, a, b, value=0.3), id="addcmul"),
        pytest.param(lambda a, b: torch.addcdiv(a, a, b, value=0.3), id="addcdiv"),
        pytest.param(lambda a, b: torch.lerp(a, b, 0.25), id="lerp"),
    ],
)
def test_extra_arguments(compute, device: str) -> None:
    assert_same(compute, sample(7, 5), sample(7, 5, seed=9), device=device)


SCALARS = [2, -3, 0.5, True, 1 + 2j]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int64, torch.bool], ids=str)
def test_scalar_operand(scalar: complex, dtype: torch.dtype, device: str) -> None:
    x = sample(4, 3, dtype=dtype)
    for compute in (
        lambda x: x + scalar,
        lambda x: scalar * x,
        lambda x: x == scalar,
        lambda x: torch.rsub(x, scalar) if x.dtype != torch.bool and scalar is not True else x,
    ):
        assert_same(compute, x, device=device)


PROMOTED = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.complex64,
]


@pytest.mark.parametrize("left", PROMOTED, ids=str)
def test_type_promotion(left: torch.dtype, device: str) -> None:
    for right in PROMOTED:
        for size in ((3,), ()):
            a, b = sample(3, dtype=left), sample(*size, dtype=right, seed=3)
            if torch.result_type(a, b) == torch.complex32:
                continue  # the CPU has next to no kernels for it
            for function in (torch.add, torch.mul, torch.eq, torch.true_divide):
                assert_same(function, a, b, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -1.0], ids=repr)
def test_pow_scalar(dtype: torch.dtype, exponent: float, device: str) -> None:
    x = sample(5, 6, dtype=dtype).abs() + 1
    assert_same(lambda x: (torch.pow(x, exponent), torch.pow(2, x)), x, device=device)


@pytest.mark.parametrize(
    "arrange",
    [
        pytest.param(lambda x: x.t(), id="transposed"),
        pytest.param(lambda x: x[::2, 1::3], id="strided"),
        pytest.param(lambda x: x[2:, 3:], id="offset"),
        pytest.param(lambda x: x[:1].expand(8, 12), id="expanded"),
        pytest.param(lambda x: x.view(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), id="channels last"),
        pytest.param(lambda x: x.flatten().as_strided((4, 4), (3, 2), 1), id="overlapping"),
    ],
)
def test_layouts(arrange, device: str) -> None:
    x = arrange(sample(8, 12))
    assert_same(lambda x: (x.exp(), x * 2, x + x.clone(), x.to(torch.float64), x > 0), x, device=device)


@pytest.mark.parametrize(
    ("out_shape", "out_dtype"),
    [((0,), torch.float32), ((3, 4), torch.float64), ((3, 4), torch.complex64), ((12,), torch.float32)],
)
def test_out_of_another_shape_or_dtype(out_shape, out_dtype, device: str) -> None:
    a, b, out = sample(3, 4), sample(4, seed=9), sample(*out_shape, dtype=out_dtype)

    def compute(a, b, out):
        resized = out.numel() and out.shape != a.shape
        with pytest.warns(UserWarning, match="was resized") if resized else contextlib.nullcontext():
            return torch.add(a, b, out=out) is out, out

    assert_same(compute, a, b, out, device=device)


def test_out_refuses_a_dtype_that_cannot_hold_the_result(device: str) -> None:
    x, out = sample(3).to(device), torch.zeros(3, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=out)


def test_overlapping_out_is_refused(device: str) -> None:
    x = sample(6).to(device)
    with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
        torch.add(x[:5], 1, out=x[1:])


def test_in_place_through_a_view_and_version(device: str) -> None:
    base = sample(4, 6).to(device)
    before = base._version
    view = base[1:3]
    view.mul_(2).add_(1)
    assert base._version == view._version == before + 2
    assert view._base is base
    expected = sample(4, 6)
    expected[1:3] = expected[1:3] * 2 + 1
    assert torch.equal(base.cpu(), expected)
