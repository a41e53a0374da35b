"""Kind `errors`: the table's wrong inputs are refused with the reference's type of exception."""

from __future__ import annotations

from parity import seed_generators

from opinfo.cases import OPERATORS, Case
from opinfo.samples import SEED, Sample, spread


def samples(case: Case, limit: int | None) -> list[Sample]:
    """The table's error inputs, on the CPU; asked as the kind `values` asks."""
    op = OPERATORS[case.name]
    seed_generators(SEED)
    found = [error.sample_input for error in op.error_inputs_func(op, "cpu")]
    return [Sample((s.input, *s.args), dict(s.kwargs)) for s in spread(found, limit)]
