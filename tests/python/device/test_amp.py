"""Automatic mixed precision: which operators change dtype, how contexts nest, and what the gradient scaler does."""

from __future__ import annotations

import warnings

import pytest
import torch
from parity import assert_equal, sample
from torch.nn import functional

#: The CPU has operator lists of its own; only what concerns the scaler can be tried there.
needs_flagos = pytest.mark.needs_flagos
pytestmark = pytest.mark.contract("amp")

LOW = [torch.float16, torch.bfloat16]


@needs_flagos
def test_supported_dtypes_and_default(device: str) -> None:
    assert set(torch.flagos.get_amp_supported_dtype()) >= set(LOW)
    assert torch.get_autocast_dtype(device) == torch.float16
    assert torch.amp.is_autocast_available(device)
    with torch.autocast(device):
        assert torch.mm(sample(2, 2).to(device), sample(2, 2).to(device)).dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@needs_flagos
def test_unsupported_dtype_warns_and_disables(dtype: torch.dtype, device: str) -> None:
    with pytest.warns(UserWarning, match="(?i)autocast"):
        context = torch.autocast(device, dtype=dtype)
    with context:
        assert not torch.is_autocast_enabled(device)
        assert torch.mm(sample(2, 2).to(device), sample(2, 2).to(device)).dtype == torch.float32


@needs_flagos
def test_nested_contexts_restore_the_state(device: str) -> None:
    assert not torch.is_autocast_enabled(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(device)
        assert torch.get_autocast_dtype(device) == torch.bfloat16
        with torch.autocast(device, enabled=False):
            assert not torch.is_autocast_enabled(device)
            with torch.autocast(device, dtype=torch.float16):
                assert torch.get_autocast_dtype(device) == torch.float16
        assert torch.is_autocast_enabled(device)
        assert torch.get_autocast_dtype(device) == torch.bfloat16
    assert not torch.is_autocast_enabled(device)
    with pytest.raises(ValueError, match="inside"), torch.autocast(device):
        raise ValueError("inside")
    assert not torch.is_autocast_enabled(device)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool], ids=str
)
@needs_flagos
def test_outside_a_context_dtypes_stay(dtype: torch.dtype, device: str) -> None:
    x = sample(2, 3, dtype=dtype).to(device)
    assert (x * x).dtype == dtype
    if dtype.is_floating_point:
        assert (x @ x.t()).dtype == dtype


@needs_flagos
def test_float64_round_trip_is_exact(device: str) -> None:
    x = sample(50, dtype=torch.float64) * 1e300
    with torch.autocast(device):
        assert torch.equal(x.to(device).cpu(), x)


LOWER = {
    "mm": lambda x: torch.mm(x, x),
    "matmul": lambda x: x @ x,
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "addmm": lambda x: torch.addmm(x, x, x),
    "linear": lambda x: functional.linear(x, x, x[0]),
    "conv1d": lambda x: functional.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "prelu": lambda x: functional.prelu(x, x[0, :1]),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
}
FLOAT32 = {
    "log": lambda x: x.log(),
    "exp": lambda x: x.exp(),
    "pow": lambda x: x.pow(2),
    "softplus": lambda x: functional.softplus(x),
    "layer_norm": lambda x: functional.layer_norm(x, (4,)),
    "mse_loss": lambda x: functional.mse_loss(x, x * 2),
    "l1_loss": lambda x: functional.l1_loss(x, x * 2),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, x),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "nll_loss": lambda x: functional.nll_loss(x, torch.zeros(4, dtype=torch.int64, device=x.device)),
    "bce with logits": lambda x: functional.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "rsqrt": lambda x: x.rsqrt(),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(0),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(),
}


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", LOWER)
@needs_flagos
def test_runs_in_lower_precision(name: str, dtype: torch.dtype, device: str) -> None:
    x = sample(4, 4).to(device)
    with torch.autocast(device, dtype=dtype):
        result = LOWER[name](x)
    assert result.dtype == dtype
    assert_equal(result, LOWER[name](sample(4, 4).to(dtype)), device)


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("name", FLOAT32)
@needs_flagos
def test_runs_in_float32(name: str, dtype: torch.dtype, device: str) -> None:
    x = (sample(4, 4).abs() + 1).to(dtype)
    with torch.autocast(device, dtype=dtype):
        result = FLOAT32[name](x.to(device))
    assert result.dtype == torch.float32
    assert_equal(result, FLOAT32[name](x.float()), device)


@needs_flagos
def test_given_dtype_wins(device: str) -> None:
    x = sample(4, 4, dtype=torch.float16).to(device)
    with torch.autocast(device):
        assert x.softmax(1, dtype=torch.float16).dtype == torch.float16
        assert x.sum(0, dtype=torch.float64).dtype == torch.float64


PROMOTED = {
    "atan2": torch.atan2,
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "dot": lambda a, b: torch.dot(a.flatten(), b.flatten()),
    "cross": lambda a, b: torch.cross(a[:, :3], b[:, :3], dim=1),
}


@pytest.mark.parametrize("name", PROMOTED)
@needs_flagos
def test_promotes_to_the_widest(name: str, device: str) -> None:
    a, b = sample(4, 4, dtype=torch.float16).to(device), sample(4, 4, seed=8).to(device)
    with torch.autocast(device):
        assert PROMOTED[name](a, b).dtype == torch.float32
        assert PROMOTED[name](a, a).dtype == torch.float16


@needs_flagos
def test_unlisted_operators_keep_their_dtype(device: str) -> None:
    x = sample(4, 4, dtype=torch.float16).to(device)
    with torch.autocast(device):
        assert (x + x).dtype == torch.float16
        assert functional.relu(x).dtype == torch.float16
        assert functional.binary_cross_entropy(x.sigmoid(), x.sigmoid()).dtype == torch.float16


@needs_flagos
def test_integer_operands_are_left_alone(device: str) -> None:
    x = sample(3, 3, dtype=torch.int64).to(device)
    with torch.autocast(device):
        assert (x @ x).dtype == torch.int64
        assert (
            torch.mm(sample(3, 3, dtype=torch.float64).to(device), sample(3, 3, dtype=torch.float64).to(device)).dtype
            == torch.float64
        )


@needs_flagos
def test_cast_weights_are_cached_and_gradients_are_float32(device: str) -> None:
    layer = torch.nn.Linear(4, 4).to(device)
    x = sample(2, 4).to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        output = layer(layer(x))
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}


@needs_flagos
def test_cpu_autocast_and_device_autocast_are_apart(device: str) -> None:
    x = sample(2, 2)
    with torch.autocast(device):
        assert (x @ x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x.to(device) @ x.to(device)).dtype == torch.float32


@needs_flagos
def test_custom_forward_and_backward(device: str) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="flagos", cast_inputs=torch.float32)
        def forward(context, x):
            context.seen = x.dtype
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="flagos")
        def backward(context, gradient):
            assert context.seen == torch.float32
            return gradient * 2

    x = sample(3, dtype=torch.float16).to(device).requires_grad_()
    with torch.autocast(device):
        Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("gradient", "found"), [([1.0, 2.0], 0.0), ([1.0, float("inf")], 1.0), ([float("nan"), 1.0], 1.0)]
)
def test_unscale(gradient: list[float], found: float, device: str) -> None:
    grads, flag = [torch.tensor(gradient, device=device)], torch.zeros(1, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(grads, flag, torch.full((1,), 0.5, device=device))
    assert flag.item() == found
    # Infinities and NaNs are kept, not replaced.
    assert_equal(grads[0], torch.tensor(gradient) * 0.5, device)


def test_unscale_out_leaves_its_inputs_alone(device: str) -> None:
    grads, flag = [torch.tensor([4.0], device=device)], torch.zeros(1, device=device)
    out = [torch.empty(1, device=device)]
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale.out(
        grads, flag, torch.full((1,), 0.5, device=device), out=out
    )
    assert flag.item() == 0.0
    assert grads[0].item() == 4.0
    assert out[0].item() == 2.0


@pytest.mark.parametrize(("infinite", "scale", "tracker"), [(0.0, 16.0, 0), (1.0, 4.0, 0)])
def test_scale_update(infinite: float, scale: float, tracker: int, device: str) -> None:
    current, growth = torch.full((1,), 8.0, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    torch._amp_update_scale_(current, growth, torch.full((1,), infinite, device=device), 2.0, 0.5, 1)
    assert (current.item(), growth.item()) == (scale, tracker)


def one_step(device: str, factor: float) -> tuple[float, float]:
    """Scale and parameter after one step of plain descent on 4 * p, from p = 2 with scale 8."""
    parameter = torch.nn.Parameter(torch.tensor([2.0], device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=1)
    scaler.scale((parameter * 4 * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale(), parameter.item()


def test_scaler_grows_after_a_good_step(device: str) -> None:
    scale, parameter = one_step(device, 1.0)
    assert scale == 16.0
    assert parameter == pytest.approx(1.6)


def test_scaler_skips_a_step_that_overflows(device: str) -> None:
    assert one_step(device, float("inf")) == (4.0, 2.0)


@needs_flagos
def test_scaler_state_and_clipping(device: str) -> None:
    scaler = torch.amp.GradScaler(device, init_scale=4.0)
    layer = torch.nn.Linear(3, 1).to(device)
    optimizer = torch.optim.Adam(layer.parameters())
    with torch.autocast(device):
        loss = layer(sample(2, 3).to(device)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(norm)
    assert scaler.state_dict()["scale"] == 4.0
    copy = torch.amp.GradScaler(device)
    copy.load_state_dict(scaler.state_dict())
    assert copy.get_scale() == 4.0


@pytest.mark.parametrize("dtype", LOW, ids=str)
@needs_flagos
def test_training_lowers_the_loss(dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler(device)
    x = sample(64, 4).to(device)
    target = x.sum(1, keepdim=True)
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype):
                loss = functional.mse_loss(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
