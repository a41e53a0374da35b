"""The OpInfo harness finds what is wrong: a kernel with a planted fault, and the verdict that must come of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_flagos

PROGRAM = """
    import ctypes, json, sys, warnings
    sys.path[:0] = [{folder!r}]
    import torch, torch_fl
    from opinfo.cases import Case
    from opinfo.compare import Places
    from opinfo.harness import Plan
    from opinfo.running import run_cases
    from opinfo.skips import parse

    kept = []

    def right(x):
        return torch.nn.functional.silu(x.cpu()).to(x.device)

    def planted(x):
        {planted}

    warnings.simplefilter("ignore")
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", planted, "PrivateUse1")
    cases = [Case("nn.functional.silu", kind, "float32") for kind in {kinds!r}]
    plan = Plan(cases, Places("cpu", "flagos"), parse({skips!r}))
    found = []
    run_cases(plan, [str(case) for case in cases], found.append, workers=1, timeout_seconds={timeout})
    print(json.dumps([[result.outcome, " ".join(result.findings)] for result in found]))
"""

#: Body of the kernel, kind of test, outcome, and words of the finding.
PLANTED = {
    "right": ("return right(x)", "values", "pass", ""),
    "one bit of one value": (
        "y = right(x)\n        y.view(torch.int32).flatten()[:1].bitwise_xor_(1)\n        return y",
        "values",
        "wrong",
        "differ",
    ),
    "dtype": ("return right(x).double()", "values", "wrong", "dtype"),
    "strides": (
        "y = right(x)\n        return torch.empty((*y.shape, 2), device=x.device)[..., 0].copy_(y)",
        "values",
        "wrong",
        "stride",
    ),
    "shape": ("return right(x).unsqueeze(0)", "values", "wrong", "shape"),
    "the input itself": ("return x", "values", "wrong", ""),
    "device": ("return right(x).cpu()", "values", "wrong", "cpu"),
    "input changed": ("y = right(x)\n        x.zero_()\n        return y", "values", "input_changed", "arguments"),
    "exception": ("raise RuntimeError('planted')", "values", "error", "planted"),
    "crash": ("ctypes.string_at(0)", "values", "crash", "signal 11"),
    "hang": ("import time; time.sleep(60)", "values", "hang", ""),
    "memory kept": ("kept.append(right(x))\n        return right(x)", "leaks", "wrong", "bytes"),
}


def outcome_of(run_python, planted: str, kind: str, skip: str = "") -> tuple[str, str]:
    timeout = 5 if "sleep" in planted else 60
    program = PROGRAM.format(
        folder=str(Path(__file__).parent), planted=planted, kinds=[kind], skips=skip, timeout=timeout
    )
    (found,) = json.loads(run_python(program, OMP_NUM_THREADS="1").check().stdout.splitlines()[-1])
    return found[0], found[1]


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_found(fault: str, run_python) -> None:
    planted, kind, outcome, words = PLANTED[fault]
    found, text = outcome_of(run_python, planted, kind)
    assert found == outcome, text
    assert words in text


SKIP = "nn.functional.silu | values | float32 | expected_failure | a planted fault"


def test_an_expected_failure_must_fail(run_python) -> None:
    assert outcome_of(run_python, "return right(x).double()", "values", SKIP)[0] == "expected_failure"
    assert outcome_of(run_python, "return right(x)", "values", SKIP)[0] == "unexpected_pass"


def test_a_crash_is_never_expected(run_python) -> None:
    assert outcome_of(run_python, "ctypes.string_at(0)", "values", SKIP)[0] == "crash"
