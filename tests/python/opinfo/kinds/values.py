"""Kind `values`: the call as the table makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from parity import seed_generators

from opinfo.attempts import Attempt, two_runs
from opinfo.cases import MODULES, OPERATORS, Case
from opinfo.runs import Run, run
from opinfo.samples import CPU_ARGUMENTS, SEED, Sample, arguments_on


def caller(case: Case, sample: Sample, place: str, written: dict[str, Any]) -> Any:
    """What is called with `(args, kwargs)`: the operator, or the module built from a seed and moved to `place`.

    The module's state after the call is a fact to be compared: it is put into `written` when the call is made.
    """
    if sample.module is None:
        op = OPERATORS[case.name].op
        return lambda arguments: op(*arguments[0], **arguments[1])
    args, kwargs, training = sample.module
    seed_generators(SEED)
    module = MODULES[case.name].module_cls(*args, **kwargs).train(training).to(place, case.torch_dtype)

    def call(arguments: Any) -> Any:
        output = module(*arguments[0], **arguments[1])
        written["module"] = module
        return output

    return call


def module_state(written: dict[str, Any]) -> dict[str, Any]:
    module = written.get("module")
    if module is None:
        return {}
    state = {name: value.detach() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    return {"state of the module": state}


def compared_arguments(case: Case, arguments: Any) -> Any:
    """The arguments that moved to the device."""
    return arguments if case.name not in CPU_ARGUMENTS else arguments[0][0]


def execute(case: Case, sample: Sample, place: str, seed: int) -> Run:
    written: dict[str, Any] = {}
    arguments = arguments_on(sample, place, case.name)
    done = run(caller(case, sample, place, written), arguments, seed)
    done.facts |= module_state(written)
    done.arguments = compared_arguments(case, arguments)
    return done


def attempts(case: Case, sample: Sample, seed: int) -> Iterator[Attempt]:
    yield Attempt("as given", two_runs(lambda place: execute(case, sample, place, seed)))
