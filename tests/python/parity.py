"""Runs one computation on plain CPU tensors and on the device under test, and compares the two bit for bit."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: The integer type that holds the bits of one element, by element size.
BITS_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def seed_generators(seed: int) -> None:
    """Seeds the default generators of the CPU, of flagos and of CUDA.

    `torch.manual_seed` does that too, but formats the call stack once for every kind of accelerator torch knows, which
    took most of the time of the sweeps.
    """
    torch.default_generator.manual_seed(seed)
    for name in ("flagos", "cuda"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available():
            module.manual_seed_all(seed)


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """`value` with every tensor in its lists, tuples and dictionaries replaced by `function(tensor)`."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(function, item) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(function, item) for key, item in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in `value`, in reading order."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    if isinstance(value, (list, tuple)):
        for item in value:
            found += tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            found += tensors_in(item)
    return found


class Mover:
    """Copies CPU tensors to a device, storage by storage.

    Sizes, strides, offset, lazy conjugate and negative bits and `requires_grad` are kept, and tensors that shared
    memory share memory again.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._flat: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        if source.layout != torch.strided or source.is_quantized or source.device.type != "cpu":
            return source.detach().clone().to(self.device).requires_grad_(source.requires_grad)
        plain = source.detach()
        conjugate, negative = plain.is_conj(), plain.is_neg()
        if negative:
            plain = torch._neg_view(plain)
        if conjugate:
            plain = plain.conj()
        storage = plain.untyped_storage()
        key = (storage.data_ptr() if storage.nbytes() else id(source), plain.dtype)
        if key not in self._flat:
            flat = torch.empty(0, dtype=plain.dtype).set_(storage)
            # The source stays referenced: its address is the key, and must not be given to another storage.
            self._flat[key] = (flat, flat.clone() if self.device == "cpu" else flat.to(self.device))
        moved = self._flat[key][1].as_strided(plain.size(), plain.stride(), plain.storage_offset())
        if conjugate:
            moved = moved.conj()
        if negative:
            moved = torch._neg_view(moved)
        return moved.detach().requires_grad_(source.requires_grad)

    def __call__(self, value: Any) -> Any:
        return map_tensors(self.tensor, value)


def _integers(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bits as integers."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype == torch.bool:
        # As bytes: a bool that holds neither 0 nor 1 is wrong although it reads as True.
        return tensor.view(torch.uint8)
    # Signed integers, since few kernels know the wider unsigned ones.
    signed = tensor.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return tensor if signed else tensor.view(BITS_OF_SIZE[tensor.element_size()])


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bits as integers, every NaN as the same one."""
    bits = _integers(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return bits.masked_fill(tensor.to(torch.float32).isnan(), 0) if tensor.is_floating_point() else bits


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the CPU, contiguous, with its lazy bits resolved."""
    tensor = tensor.detach()
    negative, conjugate = tensor.is_neg(), tensor.is_conj()
    if tensor.dtype != torch.complex32 or not (conjugate or negative):
        return tensor.cpu().resolve_conj().resolve_neg().contiguous()
    # No kernel negates or conjugates half-precision complex numbers, so the bits are taken off first.
    tensor = torch._neg_view(tensor) if negative else tensor
    tensor = tensor.conj() if conjugate else tensor
    signs = torch.tensor([-1.0 if negative else 1.0, -1.0 if negative != conjugate else 1.0], dtype=torch.float16)
    return torch.view_as_complex(torch.view_as_real(tensor.cpu().contiguous()) * signs)


def _tensor_difference(actual: torch.Tensor, expected: torch.Tensor, values: bool) -> str | None:
    facts = ["dtype", "shape", "layout", "requires_grad"]
    if expected.layout == torch.strided:
        facts += ["stride"]
    for fact in facts:
        found, wanted = getattr(actual, fact), getattr(expected, fact)
        if fact == "stride":
            found, wanted = found(), wanted()
        if found != wanted:
            return f"{fact} {found}, expected {wanted}"
    if not values or expected.is_meta:
        return None
    if expected.layout == torch.sparse_coo:
        if actual.is_coalesced() != expected.is_coalesced():
            return f"is_coalesced {actual.is_coalesced()}, expected {expected.is_coalesced()}"
        for part in ("_indices", "_values"):
            parts = (getattr(tensor.detach(), part)() for tensor in (actual, expected))
            if reason := _tensor_difference(*parts, values):
                return f"{part[1:]}: {reason}"
        return None
    if expected.layout != torch.strided:
        return _tensor_difference(actual.detach().cpu().to_dense(), expected.detach().to_dense(), values)
    if expected.is_quantized:
        return None if torch.equal(actual.detach().cpu(), expected.detach()) else "values differ"
    found, wanted = _plain(actual), _plain(expected)
    if torch.equal(_integers(found), _integers(wanted)):
        return None
    unequal = _bits(found) != _bits(wanted)
    if not unequal.any():
        return None
    number = int(unequal.sum())
    if found.is_complex():
        unequal = unequal.any(-1)
    return (
        f"{number} of {wanted.numel()} values of shape {tuple(wanted.shape)} differ, first: "
        f"{found[unequal][:3].tolist()}, expected {wanted[unequal][:3].tolist()}"
    )


def difference(
    actual: Any,
    expected: Any,
    *,
    device: str,
    values: bool = True,
    path: str = "result",
    reference: str = "cpu",
) -> str | None:
    """Says where `actual` differs from `expected`, or returns None.

    `expected` comes from the device `reference`; where its tensors are on it, those of `actual` must be on `device`.
    Values are compared as bits, so -0.0 is not 0.0, while all NaNs are equal. `values=False` compares only what
    describes a tensor.
    """
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            return f"{path}: a {type(actual).__name__}, expected a tensor"
        same_place = expected.device.type == torch.device(reference).type
        wanted = torch.device(device).type if same_place else expected.device.type
        if actual.device.type != wanted:
            return f"{path}: on {actual.device}, expected {wanted}"
        reason = _tensor_difference(actual, expected, values)
        return f"{path}: {reason}" if reason else None
    if isinstance(expected, (list, tuple)):
        if type(actual) is not type(expected) or len(actual) != len(expected):
            wanted = f"{type(expected).__name__} of {len(expected)}"
            return f"{path}: {type(actual).__name__} of {len(actual)}, expected {wanted}"
        pairs = [(f"{path}[{i}]", a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    elif isinstance(expected, dict):
        if list(actual) != list(expected):
            return f"{path}: keys {list(actual)}, expected {list(expected)}"
        pairs = [(f"{path}[{key!r}]", actual[key], expected[key]) for key in expected]
    elif isinstance(expected, float) and isinstance(actual, float):
        same = (actual != actual and expected != expected) or struct.pack("d", actual) == struct.pack("d", expected)
        return None if same else f"{path}: {actual!r}, expected {expected!r}"
    elif isinstance(expected, str) and expected == reference and actual == device:
        return None  # a device argument by name
    elif isinstance(expected, torch.device):
        return None if isinstance(actual, torch.device) else f"{path}: {actual!r}, expected a device"
    else:
        return None if not values or actual == expected else f"{path}: {actual!r}, expected {expected!r}"
    for where, found, wanted in pairs:
        if reason := difference(found, wanted, device=device, values=values, path=where, reference=reference):
            return reason
    return None


def assert_equal(actual: Any, expected: Any, device: str) -> None:
    """Fails with the place and the values unless both are the same bit for bit."""
    if reason := difference(actual, expected, device=device):
        raise AssertionError(reason)


def _backward(outputs: Any, seed: int) -> None:
    """Runs backward from every differentiable output, with gradients that depend on `seed` alone."""
    generator = torch.Generator().manual_seed(seed)
    roots = [tensor for tensor in tensors_in(outputs) if tensor.requires_grad]
    if not roots:
        raise AssertionError("no output requires a gradient")
    # Drawn on the CPU in both runs, in the order of the outputs.
    gradients = [
        torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root.dtype).to(root.device)
        for root in roots
    ]
    torch.autograd.backward(roots, gradients)


def assert_same(compute: Callable[..., Any], *inputs: Any, device: str, backward: bool = False, seed: int = 20) -> Any:
    """Calls `compute(*inputs)` on CPU copies and on device copies of `inputs`; results must agree bit for bit.

    The inputs after the call are compared too, and with `backward` the gradients of all that require one. Returns the
    device's result.
    """
    results = []
    for place in ("cpu", device):
        arguments = Mover(place)(inputs)
        seed_generators(seed)
        output = compute(*arguments)
        if backward:
            _backward(output, seed)
        gradients = [tensor.grad for tensor in tensors_in(arguments) if tensor.requires_grad] if backward else []
        results.append((output, arguments, gradients))
    (expected, expected_inputs, expected_gradients), (actual, actual_inputs, actual_gradients) = results
    for name, found, wanted in (
        ("result", actual, expected),
        ("inputs after the call", actual_inputs, expected_inputs),
        ("gradients", actual_gradients, expected_gradients),
    ):
        if reason := difference(found, wanted, device=device, path=name):
            raise AssertionError(reason)
    return actual


def assert_same_module(
    build: Callable[[], torch.nn.Module],
    *inputs: Any,
    device: str,
    backward: bool = True,
    call: Callable[..., Any] = lambda module, *arguments: module(*arguments),
    seed: int = 20,
) -> None:
    """As `assert_same` for a module: built twice on the CPU from one seed, moved, called; parameters compared too."""

    results = []
    for place in ("cpu", device):
        seed_generators(seed)
        module = build().to(place)
        arguments = Mover(place)(inputs)
        seed_generators(seed + 1)
        output = call(module, *arguments)
        if backward:
            _backward(output, seed)
        results.append(
            {
                "output": output,
                "state": module.state_dict(),
                "parameter gradients": {name: p.grad for name, p in module.named_parameters()},
                "input gradients": [t.grad for t in tensors_in(arguments) if t.requires_grad],
            }
        )
    if reason := difference(results[1], results[0], device=device, path="module"):
        raise AssertionError(reason)


def sample(*size: int, dtype: torch.dtype = torch.float32, seed: int = 7, requires_grad: bool = False) -> torch.Tensor:
    """A CPU tensor of `size` whose values depend on `seed` alone: normal, small whole or true-and-false numbers."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(size, generator=generator) < 0.5
    if dtype.is_complex:
        return torch.randn(size, generator=generator, dtype=dtype).requires_grad_(requires_grad)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -20
        return torch.randint(low, 21, size, generator=generator).to(dtype)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)
