"""The part that `make test` runs: every operator and module with every kind of test, few dtypes, few samples."""

from __future__ import annotations

from .cases import KINDS, MODULE_KINDS, MODULES, OPERATORS, Case, dtypes_of_module, dtypes_of_operator

SAMPLES = 2
#: Tried in this order.
PREFERRED = ("float32", "complex64", "int64", "bool", "bfloat16", "float64")
#: How many dtypes a kind is run with; the others with one.
DTYPES = {"values": 4, "layouts": 2}


def chosen(dtypes: list[str], count: int) -> list[str]:
    """The `count` dtypes that are preferred most."""
    ordered = [*(dtype for dtype in PREFERRED if dtype in dtypes), *(d for d in dtypes if d not in PREFERRED)]
    return ordered[:count]


def slice_cases(reference: str) -> list[Case]:
    operators = [
        Case(name, kind, dtype)
        for name in OPERATORS
        for kind in KINDS
        for dtype in chosen(dtypes_of_operator(name, kind, reference), DTYPES.get(kind, 1))
    ]
    modules = [
        Case(name, kind, dtype)
        for name in MODULES
        for kind in MODULE_KINDS
        for dtype in chosen(dtypes_of_module(name, kind, reference), 1)
    ]
    return operators + modules
