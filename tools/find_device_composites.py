"""Finds the operators and modules that take another path on flagos than on the CPU: composites that look at the device.

Every OpInfo and every module that torch describes for its own tests runs once on the CPU and once on flagos, forward
and backward, and two records of each run are compared:

  parts   what a TorchDispatchMode sees, below autograd: the operators that fake tensors, tensor subclasses and
          torch.compile are given. Operators called inside a kernel, so also those on backing tensors, are not seen.
  run     what the profiler sees when nobody watches the parts: every operator called through the dispatcher at any
          depth, also those called on backing tensors.

A composite that flagos runs on backing tensors as a whole steps aside when somebody watches its parts, so it differs in
`parts` and must agree in `run`. The two records therefore tell a handled composite from an unhandled one. Every stretch
in which the two sequences differ must be in the table of accepted differences in this file, which gives the reasons.

Example:
  python tools/find_device_composites.py --only 'nn.functional.*' --samples 1

Exit status: 0 no unexplained difference, 1 at least one, 2 wrong use.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64, torch.bfloat16, torch.float16)
DTYPES_BY_NAME = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}

#: Modules whose inputs torch describes for float64 only.
FLOAT64_MODULES = frozenset({"nn.FractionalMaxPool2d", "nn.FractionalMaxPool3d"})

#: Samples of a module for one of an operator: each has another combination of options, which decide the path.
MODULE_SAMPLES = 4

#: How many operators of a stretch that differs are shown.
SHOWN = 6

#: Operators whose inside differs and does not matter: the record keeps the call and leaves the inside out. The
#: overloads that the device serves itself are added.
LEAVES = {
    "scalar_tensor": "on the CPU torch fills the scalar without the dispatcher",
    "to.device": "indices and values that Python wrote as lists are made on the CPU; there nothing is left to copy",
}

#: Autograd nodes that are left out with all that they call.
NODES_LEFT_OUT = {
    "torch::autograd::AccumulateGrad": "an alias is one more node, which moves the moment of the sum",
}

#: What the modules are run in: name, training, with gradients.
MODULE_MODES = (("train", True, True), ("eval", False, True), ("inference", False, False))


@dataclass(frozen=True)
class Handled:
    """An accepted difference. The patterns match a whole stretch, its calls joined by spaces.

    A stretch in which flagos raises is accepted only by a row that names the error.
    """

    names: str  # pattern of the operator or module
    record: str
    cpu: str
    flagos: str
    reason: str


WATCHED = "runs on backing tensors as a whole, unless its parts are watched: then they are those of any accelerator"
UNCHECKED = "on accelerators torch leaves the range check to the kernel that indexes; it raises, in other words"
SPARSE = "refused by name: flagos has no sparse layouts yet"
LENGTHS = "target lengths given as a list become a CPU tensor, which the CPU need not copy"
MAX_POOL1D = (
    "empty.memory_format",
    "max_pool1d_with_indices *",
    "on the CPU torch leaves the indices out where no gradient needs them; the values are the same",
)

#: Every accepted difference.
HANDLED = (
    Handled(
        "nn.Lazy*", "parts", "", "_has_compatible_shallow_copy_type", "the answer is ours, so a mode sees the question"
    ),
    *(Handled(names, "parts", "*", "*", WATCHED) for names in ("nn.GRU*", "nn.LSTM*", "nn.RNN*")),
    Handled("nn.functional.one_hot", "*", "aminmax*", "*", UNCHECKED),
    Handled("nn.functional.one_hot", "*", "*_local_scalar_dense", "", UNCHECKED),
    *(
        Handled(names, "*", "*", "NotImplementedError: *layout [sS]parse*", SPARSE)
        for names in ("sparse.*", "to_sparse")
    ),
    *(Handled(names, "run", *MAX_POOL1D) for names in ("nn.MaxPool1d", "nn.functional.max_pool1d")),
    Handled("tensor_split", "*", "*", "RuntimeError: *indices_or_sections to be on cpu*", "as on every accelerator"),
    *(
        Handled(names, "run", "", "to.dtype_layout _to_copy", LENGTHS)
        for names in ("nn.CTCLoss", "nn.functional.ctc_loss")
    ),
    *(Handled(names, "parts", "", "_to_copy@cpu", LENGTHS) for names in ("nn.CTCLoss", "nn.functional.ctc_loss")),
)


@dataclass(frozen=True)
class Difference:
    """One stretch in which the two sequences of a sample differ."""

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


def move(value: Any, device: str, moved: dict[int, torch.Tensor] | None = None) -> Any:
    """`value` with copies of its tensors on `device`, and `device` where it names the CPU.

    A tensor that occurs twice is copied once, since kernels compare identities; `moved` remembers the copies.
    """
    moved = {} if moved is None else moved
    if isinstance(value, torch.Tensor):
        if id(value) not in moved:
            moved[id(value)] = value.detach().clone().to(device).requires_grad_(value.requires_grad)
        return moved[id(value)]
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device(device)
    if isinstance(value, str) and value == "cpu":
        return device
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device, moved) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(move(item, device, moved) for item in value)
    if isinstance(value, dict):
        return {key: move(item, device, moved) for key, item in value.items()}
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


def operator_cases(samples: int, dtypes: tuple[torch.dtype, ...]) -> Iterator[tuple[str, Callable[[], Iterator[Case]]]]:
    """Name and maker of the cases of each OpInfo."""
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")

        def cases(op: Any = op, name: str = name) -> Iterator[Case]:
            supported = op.supported_dtypes("cpu")
            dtype = next((dtype for dtype in dtypes if dtype in supported), None)
            if dtype is None:
                return
            differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            seed_generators(11)
            # op.sample_inputs would wrap these in an iterator that inspects the whole call stack for each operator.
            described = op.sample_inputs_func(op, "cpu", dtype, requires_grad=differentiable)
            modes = (("", True), ("no_grad ", False)) if differentiable else (("", False),)
            for number, sample in enumerate(islice(described, samples)):
                for mode, gradients in modes:

                    def prepare(device: str, sample: Any = sample, gradients: bool = gradients) -> Callable[[], Any]:
                        first, args, kwargs = move((sample.input, tuple(sample.args), dict(sample.kwargs)), device)

                        def call() -> None:
                            with torch.set_grad_enabled(gradients):
                                run_backward(op(first, *args, **kwargs))

                        return call

                    yield Case(name, f"{mode}{str(dtype).removeprefix('torch.')} {number}", prepare)

        yield name, cases


def module_cases(samples: int) -> Iterator[tuple[str, Callable[[], Iterator[Case]]]]:
    """Name and maker of the cases of each module description: training, and evaluation with and without gradients."""
    for info in module_db:

        def cases(info: Any = info) -> Iterator[Case]:
            dtype = torch.float64 if info.name in FLOAT64_MODULES else torch.float32
            for mode, training, gradients in MODULE_MODES:
                seed_generators(3)
                described = info.module_inputs_func(
                    info, device="cpu", dtype=dtype, requires_grad=gradients, training=training
                )
                for number, sample in enumerate(islice(described, samples)):
                    if sample.forward_input is None:
                        continue

                    def prepare(
                        device: str, sample: Any = sample, training: bool = training, gradients: bool = gradients
                    ) -> Callable[[], Any]:
                        seed_generators(5)
                        constructor = sample.constructor_input
                        module = info.module_cls(*constructor.args, **constructor.kwargs).train(training).to(device)
                        args, kwargs = move((sample.forward_input.args, sample.forward_input.kwargs), device)

                        def call() -> None:
                            with torch.set_grad_enabled(gradients):
                                run_backward(module(*args, **kwargs))

                        return call

                    yield Case(info.name, f"{mode} {number}", prepare)

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


def record_run(case: Case, device: str, leaves: frozenset[str]) -> list[str]:
    """What the profiler sees; the parts of `leaves` are left out on both devices."""
    call = case.prepare(device)
    seed_generators(6)
    raised = []
    with profile(experimental_config=_ExperimentalConfig(capture_overload_names=True)) as profiler:
        try:
            call()
        except Exception as error:  # noqa: BLE001
            raised.append(f"{type(error).__name__}: {error}".splitlines()[0])
    names = []
    left_out_until: dict[int, int] = {}  # thread → end of the call whose parts are left out
    for event in sorted(profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.start_ns() < left_out_until.get(event.start_thread_id(), 0):
            continue
        if event.name() in NODES_LEFT_OUT:
            left_out_until[event.start_thread_id()] = event.end_ns()
        namespace, separator, name = event.name().partition("::")
        if not separator or namespace in ("autograd", "torch", "flagos"):
            continue
        if event.overload_name():
            name += f".{event.overload_name()}"
        if namespace == "aten" and name in leaves:
            left_out_until[event.start_thread_id()] = event.end_ns()
        names.append(name if namespace == "aten" else f"{namespace}::{name}")
    return names + raised


def reason_for(case: Case, record: str, cpu: list[str], flagos: list[str]) -> str | None:
    """The reason in the table, if the stretch is accepted."""
    left, right = " ".join(cpu), " ".join(flagos)
    raised = any("Error: " in name for name in flagos)
    for row in HANDLED:
        if raised and "Error" not in row.flagos:
            continue
        patterns = ((case.name, row.names), (record, row.record), (left, row.cpu), (right, row.flagos))
        if all(fnmatch.fnmatchcase(text, pattern) for text, pattern in patterns):
            return row.reason
    return None


def compare(case: Case, record: str, cpu: list[str], flagos: list[str]) -> list[Difference]:
    """Every stretch in which the two sequences differ."""
    stretches = difflib.SequenceMatcher(a=cpu, b=flagos, autojunk=False).get_opcodes() if cpu != flagos else []
    return [
        Difference(
            case.name,
            case.sample,
            record,
            begin,
            cpu[begin:end],
            flagos[begin_there:end_there],
            reason_for(case, record, cpu[begin:end], flagos[begin_there:end_there]),
        )
        for kind, begin, end, begin_there, end_there in stretches
        if kind != "equal"
    ]


def differences_of(case: Case, leaves: frozenset[str]) -> list[Difference]:
    """The differences of one case in both records. A case that the CPU refuses has none."""
    expected = record_run(case, "cpu", leaves)
    if expected and ": " in expected[-1]:
        return []
    return [
        *compare(case, "run", expected, record_run(case, "flagos", leaves)),
        *compare(case, "parts", record_parts(case, "cpu"), record_parts(case, "flagos")),
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for kernels inside: the path does not depend on it, and on a busy machine threads wait for others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def find(
    patterns: list[str], samples: int, dtypes: tuple[torch.dtype, ...], progress: bool
) -> tuple[int, list[Difference]]:
    """Number of cases compared, and every difference, for the operators and modules whose name matches a pattern."""
    import torch_fl

    leaves = frozenset(LEAVES) | {row["overload"] for row in torch_fl._C.device_overloads()}
    makers = [*operator_cases(samples, dtypes), *module_cases(samples * MODULE_SAMPLES)]
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
    # One thread for the whole backward pass, or nodes on flagos and on aliases would run in any order.
    with warnings.catch_warnings(), one_thread(), torch.autograd.set_multithreading_enabled(False):
        warnings.simplefilter("ignore")
        for _, cases in rows:
            for case in cases():
                count += 1
                differences += differences_of(case, leaves)
    return count, differences


def shorten(names: list[str]) -> str:
    """The first names of a stretch, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "nothing") + more


def print_table(differences: list[Difference]) -> None:
    """The first accepted and the first unexplained difference of each operator and record, unexplained ones first."""
    shown = set()
    for difference in sorted(differences, key=lambda d: d.handled is not None):
        key = (difference.name, difference.record, difference.handled)
        if key in shown:
            continue
        shown.add(key)
        status = f"handled: {difference.handled}" if difference.handled else "UNEXPLAINED"
        print(f"{difference.name} ({difference.sample}), {difference.record} from call {difference.position}: {status}")
        print(f"    cpu:    {shorten(difference.cpu)}\n    flagos: {shorten(difference.flagos)}")


def main(arguments: list[str] | None = None) -> int:
    """Command line; see `--help`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="names as in op_db and module_db")
    parser.add_argument(
        "--samples",
        type=int,
        default=3,
        help=f"samples of each operator (default: 3), {MODULE_SAMPLES} times as many of each module",
    )
    parser.add_argument("--json", action="store_true", help="write a JSON object to stdout instead of the table")
    parser.add_argument("--dtype", choices=sorted(DTYPES_BY_NAME), help="for operators, instead of the first that fits")
    options = parser.parse_args(arguments)
    dtypes = (DTYPES_BY_NAME[options.dtype],) if options.dtype else DTYPES
    if options.samples < 1:
        parser.error("--samples must be 1 or more")
    count, differences = find(options.only, options.samples, dtypes, progress=sys.stderr.isatty())
    if count == 0:
        parser.error(f"nothing matches {' '.join(options.only)}")
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
