"""Finds the operators and modules that take another path on flagos than on the CPU: composites that look at the device.

Every OpInfo and every module that torch describes for its own tests runs once on the CPU and once on flagos, forward
and backward, and two records of each run are compared:

  parts   what a TorchDispatchMode sees, below autograd: the operators that fake tensors, tensor subclasses and
          torch.compile are given. Operators called inside a kernel, so also those on backing tensors, are not seen.
  run     what the profiler sees when nobody watches the parts: every operator called through the dispatcher at any
          depth, also those called on backing tensors.

A composite that flagos runs on backing tensors as a whole steps aside when somebody watches its parts, so it differs in
`parts` and must agree in `run`. The two records therefore tell a handled composite from an unhandled one.

Example:
  python tools/find_device_composites.py --only 'nn.functional.*' --samples 1
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

# The profiler otherwise writes two lines to stderr for each of thousands of runs. Read when torch is loaded.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import profile
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._python_dispatch import TorchDispatchMode

#: Tried in this order; the first one that the operator supports on the CPU is used.
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64)

#: Modules whose inputs torch describes for float64 only.
FLOAT64_MODULES = frozenset({"nn.FractionalMaxPool2d", "nn.FractionalMaxPool3d"})

#: How many operators of each sequence a difference shows.
SHOWN = 4


@dataclass(frozen=True)
class Handled:
    """A difference that is meant: in which record, from which call on, and why."""

    record: str
    cpu: str  # pattern of the first differing operator in the CPU's sequence
    flagos: str  # and in that of flagos
    reason: str


#: Every accepted difference, the more special one first.
HANDLED: tuple[Handled, ...] = ()


@dataclass(frozen=True)
class Difference:
    """Where the sequences of one sample part for the first time."""

    name: str
    sample: str
    record: str
    position: int
    cpu: list[str]
    flagos: list[str]
    handled: str | None


@dataclass(frozen=True)
class Case:
    """One sample of an operator or module; `prepare(device)` makes its inputs there and returns the call to record."""

    name: str
    sample: str
    prepare: Callable[[str], Callable[[], Any]]


def seed_generators(seed: int) -> None:
    """Seeds both devices; torch.manual_seed would format the call stack for every kind of accelerator torch knows."""
    torch.default_generator.manual_seed(seed)
    torch.get_device_module("flagos").manual_seed_all(seed)


def move(value: Any, device: str) -> Any:
    """`value` with copies of its tensors on `device`, and `device` where it names the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device(device)
    if isinstance(value, str) and value == "cpu":
        return device
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(move(item, device) for item in value)
    if isinstance(value, dict):
        return {key: move(item, device) for key, item in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Every tensor in the lists, tuples and dictionaries of `value`, in reading order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def run_backward(output: Any) -> None:
    """Backward from every output that can, with gradients of ones."""
    roots = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def operator_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[Case]]]]:
    """Name and maker of the cases of each OpInfo."""
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")

        def cases(op: Any = op, name: str = name) -> Iterator[Case]:
            supported = op.supported_dtypes("cpu")
            dtype = next((dtype for dtype in (*DTYPES, *supported) if dtype in supported), None)
            if dtype is None:
                return  # has no CPU kernel
            differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            seed_generators(11)
            # op.sample_inputs would wrap these in an iterator that inspects the whole call stack for each operator.
            described = op.sample_inputs_func(op, "cpu", dtype, requires_grad=differentiable)
            for number, sample in enumerate(islice(described, samples)):

                def prepare(device: str, sample: Any = sample) -> Callable[[], Any]:
                    first, args, kwargs = move((sample.input, tuple(sample.args), dict(sample.kwargs)), device)

                    return lambda: run_backward(op(first, *args, **kwargs))

                yield Case(name, f"{str(dtype).removeprefix('torch.')} {number}", prepare)

        yield name, cases


def module_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[Case]]]]:
    """Name and maker of the cases of each module description, in training and where it differs in evaluation."""
    for info in module_db:

        def cases(info: Any = info) -> Iterator[Case]:
            dtype = torch.float64 if info.name in FLOAT64_MODULES else torch.float32
            for training in (True, False) if info.train_and_eval_differ else (True,):
                seed_generators(3)
                described = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=True, training=training
                )
                for number, sample in enumerate(islice(described, samples)):
                    if sample.forward_input is None:
                        continue

                    def prepare(device: str, sample: Any = sample, training: bool = training) -> Callable[[], Any]:
                        seed_generators(5)
                        constructor = sample.constructor_input
                        module = info.module_cls(*constructor.args, **constructor.kwargs).train(training).to(device)
                        args, kwargs = move((sample.forward_input.args, sample.forward_input.kwargs), device)
                        return lambda: run_backward(module(*args, **kwargs))

                    yield Case(info.name, f"{'train' if training else 'eval'} {number}", prepare)

        yield info.name, cases


class PartsRecorder(TorchDispatchMode):
    """Keeps the names of the operators that reach it; one that is given CPU memory on a flagos run is marked."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        strangers = {t.device.type for t in tensors_in([args, kwargs]) if t.device.type != self.device and t.dim() > 0}
        self.names.append(func.name().removeprefix("aten::") + "".join(f"@{kind}" for kind in sorted(strangers)))
        return func(*args, **(kwargs or {}))


def record_parts(case: Case, device: str) -> list[str]:
    """What a dispatch mode sees. An exception ends the sequence and is its last entry."""
    call = case.prepare(device)
    seed_generators(6)
    recorder = PartsRecorder(device)
    try:
        with recorder:
            call()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is where the two devices part)
        recorder.names.append(f"{type(error).__name__}: {error}".splitlines()[0])
    return recorder.names


def record_run(case: Case, device: str, served: frozenset[str]) -> list[str]:
    """What the profiler sees; the inside of operators that the device serves itself is left out on both devices."""
    call = case.prepare(device)
    seed_generators(6)
    raised = []
    with profile(experimental_config=_ExperimentalConfig(capture_overload_names=True)) as profiler:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            raised.append(f"{type(error).__name__}: {error}".splitlines()[0])
    names = []
    inside_until: dict[int, int] = {}  # thread → end of the served operator that it is in
    for event in sorted(profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        namespace, separator, name = event.name().partition("::")
        if not separator or namespace in ("autograd", "torch", "flagos"):
            continue
        if event.start_ns() < inside_until.get(event.start_thread_id(), 0):
            continue
        if event.overload_name():
            name += f".{event.overload_name()}"
        if namespace == "aten" and name in served:
            inside_until[event.start_thread_id()] = event.end_ns()
        names.append(name if namespace == "aten" else f"{namespace}::{name}")
    return names + raised


def compare(case: Case, record: str, cpu: list[str], flagos: list[str]) -> Difference | None:
    """The first difference of two sequences, explained if it is in the table."""
    if cpu == flagos:
        return None
    pairs = zip(cpu, flagos, strict=False)
    position = next((i for i, (left, right) in enumerate(pairs) if left != right), min(len(cpu), len(flagos)))
    here, there = cpu[position : position + SHOWN], flagos[position : position + SHOWN]
    left, right = (part[0] if part else "" for part in (here, there))
    reason = next(
        (
            row.reason
            for row in HANDLED
            if row.record == record and fnmatch.fnmatchcase(left, row.cpu) and fnmatch.fnmatchcase(right, row.flagos)
        ),
        None,
    )
    return Difference(case.name, case.sample, record, position, here, there, reason)


def differences_of(case: Case, served: frozenset[str]) -> list[Difference]:
    """The differences of one case, at most one in each record. A case that the CPU refuses has none."""
    expected = record_run(case, "cpu", served)
    if expected and ": " in expected[-1]:
        return []
    found = [
        compare(case, "run", expected, record_run(case, "flagos", served)),
        compare(case, "parts", record_parts(case, "cpu"), record_parts(case, "flagos")),
    ]
    return [difference for difference in found if difference]


def find(patterns: list[str], samples: int, progress: bool) -> tuple[int, list[Difference]]:
    """Number of cases compared, and every difference, for the operators and modules whose name matches a pattern."""
    import torch_fl

    served = frozenset(row["overload"] for row in torch_fl._C.device_overloads())
    makers = [*operator_cases(samples), *module_cases(samples)]
    chosen = [maker for maker in makers if any(fnmatch.fnmatchcase(maker[0], pattern) for pattern in patterns)]
    rows: Any = chosen
    if progress:
        try:
            from tqdm import tqdm
        except ImportError:
            progress = False
        else:
            rows = tqdm(chosen, unit="operator", file=sys.stderr)
    count, differences = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, cases in rows:
            for case in cases():
                count += 1
                differences += differences_of(case, served)
    return count, differences


def print_table(differences: list[Difference]) -> None:
    """One line for each operator and record: its first difference, unexplained ones first."""
    shown = set()
    for difference in sorted(differences, key=lambda d: d.handled is not None):
        if (difference.name, difference.record) in shown:
            continue
        shown.add((difference.name, difference.record))
        sequences = f"cpu: {', '.join(difference.cpu) or '(end)'}\n    flagos: {', '.join(difference.flagos) or '(end)'}"
        status = f"handled: {difference.handled}" if difference.handled else "UNEXPLAINED"
        print(f"{difference.name} ({difference.sample}) {difference.record}[{difference.position}] {status}")
        print(f"    {sequences}")


def main(arguments: list[str] | None = None) -> int:
    """Command line; see `--help`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="names as in op_db and module_db")
    parser.add_argument("--samples", type=int, default=3, help="samples of each operator (default: 3)")
    parser.add_argument("--json", action="store_true", help="write a JSON object to stdout instead of the table")
    options = parser.parse_args(arguments)
    count, differences = find(options.only, options.samples, progress=sys.stderr.isatty())
    unexplained = [difference for difference in differences if not difference.handled]
    if options.json:
        json.dump({"cases": count, "differences": [asdict(d) for d in differences]}, sys.stdout, indent=1)
        print()
    else:
        print_table(differences)
        print(f"{count} cases, {len(differences)} differences, {len(unexplained)} unexplained")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
