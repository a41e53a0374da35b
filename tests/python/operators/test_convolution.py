"""Convolutions, pooling, normalisation and upsampling, forward and backward, equal to the CPU."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, assert_same_module, sample
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.contract("operators")


@pytest.mark.parametrize(
    ("channels", "out", "kernel", "options"),
    [
        (3, 6, 3, {}),
        (4, 8, 5, {"stride": 2, "padding": 2}),
        (4, 4, 3, {"dilation": 2, "padding": "same"}),
        (4, 8, 1, {"groups": 2, "bias": False}),
        (256, 256, 4, {"groups": 256, "padding": 3}),
        (4, 4, 3, {"padding_mode": "circular", "padding": 1}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_conv1d(channels: int, out: int, kernel: int, options: dict, dtype: torch.dtype, device: str) -> None:
    x = sample(2, channels, 33, dtype=dtype, requires_grad=True)
    assert_same_module(lambda: nn.Conv1d(channels, out, kernel, dtype=dtype, **options), x, device=device)


CONVOLUTIONS = {
    "conv2d": (lambda: nn.Conv2d(3, 5, 3, padding=1), (2, 3, 8, 9)),
    "conv2d unbatched": (lambda: nn.Conv2d(3, 5, 3), (3, 8, 9)),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 8, 9)),
    "conv2d strided": (lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 1), dilation=(1, 2)), (2, 3, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 6)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(3, 4, 3, stride=2, output_padding=1), (2, 3, 7)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 2, 2), (1, 2, 3, 3, 3)),
    "batch norm": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "batch norm eval": (lambda: nn.BatchNorm2d(3).eval(), (4, 3, 5, 5)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, affine=True), (4, 3, 9)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "layer norm": (lambda: nn.LayerNorm((3, 5)), (4, 3, 5)),
    "rms norm": (lambda: nn.RMSNorm(5), (4, 3, 5)),
    "max pool": (lambda: nn.MaxPool2d(2), (2, 3, 8, 9)),
    "avg pool": (lambda: nn.AvgPool2d(3, stride=2, padding=1), (2, 3, 8, 9)),
    "adaptive avg pool": (lambda: nn.AdaptiveAvgPool2d((3, 1)), (2, 3, 8, 9)),
    "adaptive max pool": (lambda: nn.AdaptiveMaxPool2d(2), (2, 3, 8, 9)),
    "upsample nearest": (lambda: nn.Upsample(scale_factor=2), (2, 3, 4, 4)),
    "upsample bilinear": (lambda: nn.Upsample(size=(7, 5), mode="bilinear"), (2, 3, 4, 4)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), (1, 4, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_layers(name: str, device: str) -> None:
    build, shape = CONVOLUTIONS[name]
    assert_same_module(build, sample(*shape, requires_grad=True), device=device)


def test_channels_last(device: str) -> None:
    x = sample(2, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert_same_module(lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), x, device=device)


@pytest.mark.parametrize(
    "mask", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)], ids=str
)
def test_convolution_backward_by_mask(mask: tuple[bool, bool, bool], device: str) -> None:
    assert_same(
        lambda g, x, w: torch.ops.aten.convolution_backward(g, x, w, [4], [1], [0], [1], False, [0], 1, mask),
        sample(2, 4, 5),
        sample(2, 3, 7),
        sample(4, 3, 3),
        device=device,
    )


def test_convolution_second_derivative(device: str) -> None:
    def compute(x, w):
        (gradient,) = torch.autograd.grad(functional.conv2d(x, w).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), (x, w))

    assert_same(compute, sample(1, 2, 5, 5, requires_grad=True), sample(3, 2, 3, 3, requires_grad=True), device=device)
