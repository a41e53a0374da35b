"""Operators of other namespaces: a CPU kernel serves the device, a kernel for flagos wins, autograd follows."""

from __future__ import annotations

import pytest
import torch
from parity import assert_equal, assert_same, sample

pytestmark = pytest.mark.contract("operators")

seen_devices: list[str] = []


@torch.library.custom_op("flagos_tests::scaled_sum", mutates_args=(), device_types="cpu")
def scaled_sum(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    seen_devices.extend(tensor.device.type for tensor in (x, y))
    return (x + y) * scale


@scaled_sum.register_fake
def _(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx, inputs, output) -> None:
    ctx.scale = inputs[2]


def _gradient(ctx, gradient):
    return gradient * ctx.scale, gradient * ctx.scale, None


scaled_sum.register_autograd(_gradient, setup_context=_keep)


@torch.library.custom_op("flagos_tests::accumulate", mutates_args=("x",), device_types="cpu")
def accumulate(x: torch.Tensor, parts: list[torch.Tensor]) -> None:
    for part in parts:
        x += part


LIBRARY = torch.library.Library("flagos_tests", "FRAGMENT")
LIBRARY.define("split_sign(Tensor x, Tensor? bias=None) -> (Tensor, Tensor)")
LIBRARY.impl(
    "split_sign", lambda x, bias=None: ((x + bias if bias is not None else x).clamp(min=0), x.clamp(max=0)), "CPU"
)


def test_cpu_kernel_serves_the_device(device: str) -> None:
    seen_devices.clear()
    assert_same(
        lambda x, y: torch.ops.flagos_tests.scaled_sum(x, y, 0.5), sample(3, 4), sample(3, 4, seed=8), device=device
    )
    assert set(seen_devices) == {"cpu"}


def test_autograd_of_a_custom_operator(device: str) -> None:
    inputs = sample(3, 4, requires_grad=True), sample(3, 4, seed=8, requires_grad=True)
    assert_same(lambda x, y: scaled_sum(x, y, 3.0), *inputs, device=device, backward=True)


def test_mutating_operator_with_a_list(device: str) -> None:
    def compute(x, parts):
        version = x._version
        accumulate(x, parts)
        return x, x._version > version

    assert_same(compute, sample(4), [sample(4, seed=1), sample(4, seed=2)], device=device)


def test_library_operator_with_several_results(device: str) -> None:
    assert_same(torch.ops.flagos_tests.split_sign, sample(5), device=device)
    assert_same(torch.ops.flagos_tests.split_sign, sample(5), sample(5, seed=8), device=device)


@pytest.mark.needs_flagos
def test_mixed_devices_are_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="flagos"):
        scaled_sum(sample(3).to(device), sample(3), 1.0)


@pytest.mark.needs_flagos
def test_kernel_for_the_device_wins(device: str) -> None:
    called = []

    @torch.library.custom_op("flagos_tests::twice", mutates_args=(), device_types="cpu")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_kernel("flagos")
    def _(x: torch.Tensor) -> torch.Tensor:
        called.append(x.device.type)
        return x + x

    assert_equal(twice(sample(3).to(device)), sample(3) * 2, device)
    assert called == ["flagos"]


@pytest.mark.needs_flagos
def test_operator_for_flagos_alone(device: str) -> None:
    @torch.library.custom_op("flagos_tests::only_here", mutates_args=(), device_types="flagos")
    def only_here(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    assert_equal(only_here(sample(3).to(device)), sample(3) - 1, device)
    with pytest.raises(NotImplementedError, match="only_here"):
        only_here(sample(3))


@pytest.mark.needs_flagos
def test_operator_without_any_kernel(device: str) -> None:
    LIBRARY.define("no_kernel(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="no_kernel"):
        torch.ops.flagos_tests.no_kernel(sample(3).to(device))


def test_autograd_function(device: str) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return gradient * 3 * x**2

    assert_same(Cube.apply, sample(4, requires_grad=True), device=device, backward=True)


SOURCE = """
#include <ATen/ATen.h>
#include <torch/library.h>
namespace {
at::Tensor shifted(const at::Tensor& x, double by) {
  TORCH_CHECK(x.is_cpu(), "a CPU kernel got ", x.device());
  return x + by;
}
}
TORCH_LIBRARY(flagos_tests_native, m) { m.def("shifted(Tensor x, float by) -> Tensor"); }
TORCH_LIBRARY_IMPL(flagos_tests_native, CPU, m) { m.impl("shifted", &shifted); }
"""


def test_cpu_kernel_written_in_cpp(tmp_path, device: str) -> None:
    from torch.utils.cpp_extension import load

    (tmp_path / "shifted.cpp").write_text(SOURCE)
    load(
        "shifted",
        [str(tmp_path / "shifted.cpp")],
        extra_cflags=["-O0"],
        build_directory=str(tmp_path),
        is_python_module=False,
    )
    assert_same(lambda x: torch.ops.flagos_tests_native.shifted(x, 1.5), sample(4), device=device)
