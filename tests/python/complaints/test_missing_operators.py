"""Complaint 2, operators that are not implemented: what the CPU can do the device can, and the rest says what it is.

pytorch_dlprim#38, pytorch_dlprim#82, torch-xpu-ops#3144, torch-spyre#150, torch-spyre#1981
"""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

COMPOSITES = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")

#: Operators with a CPU kernel and none here, each with the reason.
WITHOUT_KERNEL = {"aten::_nested_view_from_buffer": "the device has no nested tensors"}


def has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def test_every_operator_of_the_cpu_is_there(extension) -> None:
    served = {f"aten::{row['overload']}" for row in extension.device_overloads()}
    missing = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and has_kernel(name, "CPU")
        and not has_kernel(name, "PrivateUse1")
        and name not in served
        and not any(has_kernel(name, key) for key in COMPOSITES)
    ]
    assert sorted(missing) == sorted(WITHOUT_KERNEL)


def test_an_operator_without_any_kernel_says_what_to_do(device: str) -> None:
    library = torch.library.Library("flagos_missing", "DEF")
    library.define("nowhere(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError) as raised:
        torch.ops.flagos_missing.nowhere(torch.ones(2, device=device))
    text = str(raised.value)
    assert "flagos_missing::nowhere" in text
    assert "privateuse" not in text.lower()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch._cudnn_rnn_flatten_weight([x], 1, 1, 0, 1, 1, 1, False, False),
        lambda x: torch._scaled_dot_product_efficient_attention(x[None], x[None], x[None], None, False),
        lambda x: x.to_sparse(),
    ],
    ids=["cudnn", "efficient attention", "sparse"],
)
def test_operators_of_other_devices_are_refused_by_name(call, device: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError)) as raised:
        call(torch.ones(2, 3, 4, device=device))
    text = str(raised.value)
    assert "aten::" in text or "flagos" in text, text
    assert "privateuse" not in text.lower(), text
