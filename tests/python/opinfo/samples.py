"""The inputs of a case: made on the CPU from the case alone, then copied to each device without losing a stride."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from parity import Mover, seed_generators

from .cases import MODULES, OPERATORS, Case

#: Arguments that PyTorch wants on the CPU on every device: they stay there, and the row says why.
CPU_ARGUMENTS = {
    "tensor_split": "the tensor of indices or sections is read by the host, which PyTorch checks on every device",
}
#: Operators that make a tensor where no argument is one, or whatever the device of its arguments: told the device.
FACTORIES = ("arange", "linspace", "linspace.tensor_overload", "logspace", "logspace.tensor_overload")
#: Types that no device knows of.
PLAIN = frozenset({bool, int, float, complex, torch.dtype, torch.Size, torch.memory_format, torch.layout, slice})
SEED = 11


def unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Sample:
    """One call: `operator(*args, **kwargs)`; `args[0]` is what an in-place variant writes to."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: What PyTorch's own gradient tests do to the result before they differentiate (a norm of eigenvectors, say).
    reduce: Callable[[Any], Any] = unchanged
    #: Whether the result has another shape than `args[0]`, which an in-place call must then refuse.
    broadcasts: bool = False
    #: In a module case: arguments of the constructor, and whether the module is in training mode.
    module: tuple[tuple[Any, ...], dict[str, Any], bool] | None = None

    def summary(self) -> str:
        text = ", ".join([*map(describe, self.args), *(f"{key}={describe(v)}" for key, v in self.kwargs.items())])
        if self.module:
            args, kwargs, training = self.module
            text = f"module{(*map(describe, args), *kwargs.items())} {'training' if training else 'eval'} on ({text})"
        return text if len(text) <= 300 else text[:300] + "…"


def describe(value: Any) -> str:
    """A value in a few words: a tensor by what describes it, anything else by its repr."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        text = f"{name}{list(value.shape)}"
        if value.layout != torch.strided:
            return f"{text} {value.layout}"
        marks = [f"strides {list(value.stride())}"] if not value.is_contiguous() else []
        marks += [f"offset {value.storage_offset()}"] if value.storage_offset() else []
        marks += [word for word, there in (("conj", value.is_conj()), ("neg", value.is_neg())) if there]
        return text + (f" ({', '.join(marks)})" if marks else "")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value)


def spread(values: list[Any], limit: int | None) -> list[Any]:
    """At most `limit` of the values, the first and the last among them, the others at even distances."""
    if limit is None or len(values) <= limit:
        return values
    if limit == 1:
        return values[:1]
    return [values[round(i * (len(values) - 1) / (limit - 1))] for i in range(limit)]


def operator_samples(case: Case, requires_grad: bool, limit: int | None) -> list[Sample]:
    """The table's sample inputs of an operator, on the CPU."""
    op = OPERATORS[case.name]
    seed_generators(SEED)
    # op.sample_inputs would wrap these in an iterator that inspects the whole call stack for each operator.
    found = list(op.sample_inputs_func(op, "cpu", case.torch_dtype, requires_grad))
    return [
        Sample((s.input, *s.args), dict(s.kwargs), s.output_process_fn_grad, s.broadcasts_input)
        for s in spread(found, limit)
    ]


def module_samples(case: Case, requires_grad: bool, limit: int | None) -> list[Sample]:
    """The table's inputs of a module, on the CPU, for both modes where they differ."""
    info = MODULES[case.name]
    found = []
    for training in (True, False) if info.train_and_eval_differ else (True,):
        seed_generators(SEED)
        for inputs in info.module_inputs_func(
            info, device="cpu", dtype=case.torch_dtype, requires_grad=requires_grad, training=training
        ):
            if inputs.forward_input is not None:
                built, forward = inputs.constructor_input, inputs.forward_input
                module = (tuple(built.args), dict(built.kwargs), training)
                found.append(Sample(tuple(forward.args), dict(forward.kwargs), module=module))
    return spread(found, limit)


def make_samples(case: Case, *, requires_grad: bool = False, limit: int | None = None) -> list[Sample]:
    """All samples of a case, or at most `limit` of them."""
    return (operator_samples if case.name in OPERATORS else module_samples)(case, requires_grad, limit)


def to_device(value: Any, device: str, stays: bool = False, mover: Mover | None = None) -> Any:
    """A copy of `value`: its tensors copied to `device` by a `Mover`, every mention of the CPU replaced by `device`.

    With `stays` (see `CPU_ARGUMENTS`) the tensors after the first remain on the CPU.
    """
    mover = mover or Mover(device)
    if isinstance(value, torch.Tensor):
        # A tensor that the table puts elsewhere on purpose, to see it refused, stays there.
        return mover.tensor(value) if value.device.type == "cpu" else value
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, torch.Generator):
        return torch.Generator(device).manual_seed(value.initial_seed())
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, str):
        return device if value == "cpu" else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device, mover=mover) for item in value))
    if isinstance(value, (list, tuple)):
        rest = Mover("cpu") if stays else mover
        return type(value)(
            to_device(item, device if i == 0 or not stays else "cpu", mover=mover if i == 0 else rest)
            for i, item in enumerate(value)
        )
    if isinstance(value, dict):
        return {key: to_device(item, device, mover=mover) for key, item in value.items()}
    return value


def arguments_on(sample: Sample, device: str, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of the sample's arguments on `device`, for the operator `name`."""
    mover = Mover(device)
    args = to_device(sample.args, device, stays=name in CPU_ARGUMENTS, mover=mover)
    kwargs = to_device(sample.kwargs, device, mover=mover)
    return args, {"device": torch.device(device), **kwargs} if name in FACTORIES else kwargs
