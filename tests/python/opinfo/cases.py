"""What is run: one case is an operator or module, a kind of test and a dtype, with a text that names it for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Every kind of test, in the order of the columns of the table.
KINDS = ("values", "layouts", "inplace", "out", "backward", "double_backward", "errors", "meta", "leaks")
#: What a module is asked for; the operators inside it are asked for the rest.
MODULE_KINDS = ("values", "backward", "double_backward")
#: The dtype of a case whose inputs the table makes itself, in dtypes of its own choice.
NO_DTYPE = "any"


@dataclass(frozen=True)
class Case:
    """One operator (`nn.functional.conv2d`, `sum_to_size`, `svd`) or module (`nn.Conv2d`), kind of test and dtype."""

    name: str
    kind: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}|{self.kind}|{self.dtype}"

    @staticmethod
    def parse(text: str) -> Case:
        """The case that `str` names; ValueError if the text has another form."""
        name, kind, dtype = text.split("|")
        return Case(name, kind, dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)


def operator_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


#: By name: the operators and, with names that no operator has, the modules.
OPERATORS: dict[str, Any] = {operator_name(op): op for op in op_db}
MODULES: dict[str, Any] = {info.name: info for info in module_db}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def names_of(dtypes: Iterable[torch.dtype]) -> list[str]:
    return sorted(map(dtype_name, dtypes))


def dtypes_of_operator(name: str, kind: str, reference: str) -> list[str]:
    """Names of the dtypes in which the table claims, for the reference device, what the kind of test needs."""
    op = OPERATORS[name]
    if kind == "errors":
        return [NO_DTYPE] if op.error_inputs_func is not None else []
    if kind in ("backward", "double_backward"):
        possible = op.supports_autograd and (kind == "backward" or op.supports_gradgrad)
        return names_of(op.supported_backward_dtypes(reference)) if possible else []
    if (kind == "inplace" and op.get_inplace() is None) or (kind == "out" and not op.supports_out):
        return []
    return names_of(op.supported_dtypes(reference))


def dtypes_of_module(name: str, kind: str, reference: str) -> list[str]:
    info = MODULES[name]
    if kind not in MODULE_KINDS or (kind == "double_backward" and not info.supports_gradgrad):
        return []
    return names_of(info.supported_dtypes(reference))


def all_cases(reference: str) -> Iterator[Case]:
    """Every case, grouped by operator; the same order in each process with the same torch."""
    for names, dtypes_of in ((OPERATORS, dtypes_of_operator), (MODULES, dtypes_of_module)):
        for name in names:
            for kind in KINDS:
                for dtype in dtypes_of(name, kind, reference):
                    yield Case(name, kind, dtype)


def shard(cases: list[Case], number: int, count: int) -> list[Case]:
    """Every `count`-th case, from the `number`-th on, counted from 1: each shard has its part of every kind."""
    return cases[number - 1 :: count]
