"""Scaled dot product attention and modules built on it: the same kernels, so the same bits, as on the CPU."""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, assert_same_module, sample
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.contract("operators")


def heads(*size: int, seed: int = 7, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return sample(*size, seed=seed, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 16, 77])
def test_forward_and_backward(dtype: torch.dtype, causal: bool, length: int, device: str) -> None:
    q, k, v = (heads(2, 4, length, 16, seed=seed, dtype=dtype) for seed in range(3))
    assert_same(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        q,
        k,
        v,
        device=device,
        backward=True,
    )


OPTIONS = {
    "bool mask": lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m > -1),
    "float mask": lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
    "scale": lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, scale=0.3),
    "dropout": lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25),
    "grouped queries": lambda q, k, v, m: functional.scaled_dot_product_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True
    ),
    "transposed": lambda q, k, v, m: functional.scaled_dot_product_attention(
        *(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    ),
    "without gradients": lambda q, k, v, m: functional.scaled_dot_product_attention(q.detach(), k.detach(), v.detach()),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, device: str) -> None:
    q, k, v = (heads(2, 4, 12, 8, seed=seed) for seed in range(3))
    assert_same(OPTIONS[name], q, k, v, sample(12, 12), device=device, backward=name != "without gradients")


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
def test_chosen_kernel(backend: SDPBackend, device: str) -> None:
    def compute(q, k, v):
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v)

    assert_same(compute, *(heads(1, 2, 9, 8, seed=seed) for seed in range(3)), device=device, backward=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["attention", "encoder layer", "decoder layer"])
def test_modules(name: str, training: bool, device: str) -> None:
    build = {
        "attention": lambda: nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True),
        "encoder layer": lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        "decoder layer": lambda: nn.TransformerDecoderLayer(16, 4, 32, batch_first=True),
    }[name]
    operands = {"attention": 3, "encoder layer": 1, "decoder layer": 2}[name]
    x = sample(2, 6, 16, requires_grad=True)
    assert_same_module(
        lambda: build().train(training), x, device=device, call=lambda module, x: module(*[x] * operands)
    )


def test_inference_fast_path(device: str) -> None:
    def call(module, x, padding):
        with torch.no_grad():
            return module(x, src_key_padding_mask=padding)

    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    assert_same_module(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
        ).eval(),
        sample(2, 6, 16),
        padding,
        device=device,
        backward=False,
        call=call,
    )
