"""Complaint 10, attention that does not reach the fused kernel: the kernel that ran is counted, and contexts hold.

pytorch#162989, pytorch#124271, pytorch#126392
"""

from __future__ import annotations

import pytest
import torch
from parity import assert_same, sample
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.needs_flagos

FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def heads(device: str, requires_grad: bool = True) -> list[torch.Tensor]:
    return [sample(2, 4, 12, 8, seed=seed).to(device).requires_grad_(requires_grad) for seed in range(3)]


def calls(extension, overload: str) -> int:
    return sum(row["calls"] for row in extension.route_stats() if row["overload"] == overload)


def test_fused_forward_and_backward_run(device: str, extension) -> None:
    extension.reset_route_stats()
    scaled_dot_product_attention(*heads(device), is_causal=True).sum().backward()
    assert calls(extension, FLASH) == 1
    assert calls(extension, f"{FLASH}_backward") == 1
    assert calls(extension, "_softmax") == 0


@pytest.mark.parametrize("name", ["attention", "encoder layer", "mask", "autocast"])
def test_modules_and_options_reach_it(name: str, device: str, extension) -> None:
    q, k, v = heads(device)
    extension.reset_route_stats()
    if name == "attention":
        nn.MultiheadAttention(8, 2, batch_first=True).to(device)(q[0], k[0], v[0], need_weights=False)
    elif name == "encoder layer":
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0).to(device)(q[0])
    elif name == "mask":
        scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(12, 12, dtype=torch.bool, device=device).tril())
    else:
        with torch.autocast(device, torch.bfloat16):
            assert scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
    assert calls(extension, FLASH) == 1


def test_contexts_decide(device: str, extension) -> None:
    q, k, v = heads(device)
    for backend, fused in ((SDPBackend.MATH, 0), (SDPBackend.FLASH_ATTENTION, 1)):
        extension.reset_route_stats()
        with sdpa_kernel(backend):
            scaled_dot_product_attention(q, k, v)
        assert calls(extension, FLASH) == fused
    for unsupported in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(unsupported), pytest.raises(RuntimeError, match="No viable backend"):
            scaled_dot_product_attention(q, k, v)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        scaled_dot_product_attention(q, k, v)


def test_padded_batch_through_an_encoder(device: str) -> None:
    """The default TransformerEncoder packs padded batches into nested tensors where a device has them."""
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    torch.manual_seed(0)
    with torch.no_grad():
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
        found = model.to(device)(sample(2, 6, 16).to(device), src_key_padding_mask=padding.to(device)).cpu()
        model.cpu().use_nested_tensor = False
        wanted = model(sample(2, 6, 16), src_key_padding_mask=padding)
    assert torch.equal(found, wanted)


def test_dropout_inside_attention_is_the_devices(device: str) -> None:
    assert_same(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout_p=0.5),
        *heads("cpu"),
        device=device,
        backward=True,
    )


def test_flex_attention_is_refused_by_name(device: str) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    with pytest.raises((ValueError, NotImplementedError), match=device):
        flex_attention(*heads(device, requires_grad=False))
