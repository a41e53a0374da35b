"""Sparse, quantized, nested and opaque tensors: they work, or one NotImplementedError names operator and layout."""

from __future__ import annotations

import re
import warnings

import pytest
import torch
from parity import difference, sample

pytestmark = pytest.mark.contract("operators")

SPARSE = {
    "to_sparse": lambda x: x.to_sparse(),
    "to_sparse_csr": lambda x: x.to_sparse_csr(),
    "to_dense": lambda x: x.to_sparse().to_dense(),
    "indices": lambda x: x.to_sparse().coalesce().indices(),
    "sparse_coo_tensor": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [1, 0]], device=x.device), x[0, :2], (3, 3)
    ),
    "sparse_csr_tensor": lambda x: torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2], device=x.device), torch.tensor([1, 0], device=x.device), x[0, :2], (2, 2)
    ),
    "sparse mm": lambda x: torch.sparse.mm(x.to_sparse(), x.t().contiguous()),
    "sparse add": lambda x: x.to_sparse() + x.to_sparse(),
    "sparse mul scalar": lambda x: x.to_sparse() * 2,
    "sparse sum": lambda x: torch.sparse.sum(x.to_sparse()),
    "csr mm": lambda x: x.to_sparse_csr() @ x.t().contiguous(),
    "sampled_addmm": lambda x: torch.sparse.sampled_addmm(x[:, :3].to_sparse_csr(), x, x.t().contiguous()),
    "embedding sparse gradient": lambda x: torch.nn.functional.embedding(
        torch.tensor([0, 2], device=x.device), x, sparse=True
    ),
}
QUANTIZED = {
    "quantize_per_tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "dequantize": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
    "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
}
NESTED = {
    "nested_tensor": lambda x: torch.nested.nested_tensor([x, x[:2]]),
    "to_padded": lambda x: torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x[:2]]), 0.0),
    "jagged": lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged).values(),
}
CASES = [
    *[("sparse", name, compute) for name, compute in SPARSE.items()],
    *[("quantized", name, compute) for name, compute in QUANTIZED.items()],
    *[("nested", name, compute) for name, compute in NESTED.items()],
    ("mkldnn", "to_mkldnn", lambda x: x.to_mkldnn()),
]


@pytest.mark.parametrize(
    ("layout", "name", "compute"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_works_or_is_refused_clearly(layout: str, name: str, compute, device: str) -> None:
    x = sample(3, 4).relu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = compute(x)
        try:
            actual = compute(x.to(device))
        except NotImplementedError as refusal:
            text = str(refusal)
            assert re.search(rf"{layout}|csr|jagged", text, re.IGNORECASE), f"the layout is not named: {text}"
            assert re.search(r"[a-z_]+(::|\.)?[a-z_]+", text), f"no operator is named: {text}"
            assert "privateuse" not in text.lower(), text
            return
    if isinstance(expected, torch.Tensor) and (expected.is_nested or expected.is_mkldnn):
        assert actual.device.type == device
        return
    assert not (reason := difference(actual, expected, device=device)), reason


@pytest.mark.needs_flagos
@pytest.mark.parametrize("layout", ["sparse", "quantized", "nested"])
def test_moving_to_the_device_works_or_is_refused_clearly(layout: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = {
            "sparse": lambda: sample(3, 4).relu().to_sparse(),
            "quantized": lambda: torch.quantize_per_tensor(sample(3, 4), 0.1, 0, torch.qint8),
            "nested": lambda: torch.nested.nested_tensor([sample(2, 3), sample(1, 3)]),
        }[layout]()
        try:
            moved = source.to(device)
        except NotImplementedError as refusal:
            assert layout in str(refusal).lower()  # noqa: PT017  (either outcome is right)
            return
    assert moved.device.type == device
