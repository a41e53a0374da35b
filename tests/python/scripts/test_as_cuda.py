"""What `--as-cuda` maps, one case a way to name cuda; that nothing is changed without it; and what it lists."""

from __future__ import annotations

import concurrent.futures
import io
import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from torch_fl.as_cuda import Uses, as_cuda

pytestmark = [
    pytest.mark.needs_flagos,
    pytest.mark.filterwarnings("ignore:.*(torch.cuda.amp|pin_memory|is_pinned|default_tensor_type|pin memory).*"),
]

RUN = [sys.executable, "-m", "torch_fl.cli", "run"]


@pytest.fixture
def uses() -> Any:
    """The list of uses, while cuda stands for flagos."""
    with as_cuda() as uses:
        yield uses


x = torch.arange(4.0).reshape(2, 2)

#: Each gives a tensor, or something else with a device, that must be on flagos.
ON_THE_DEVICE = {
    "cuda()": lambda: x.cuda(),
    "cuda(0)": lambda: x.cuda(0),
    "cuda('cuda')": lambda: x.cuda("cuda"),
    "cuda(device)": lambda: x.cuda(torch.device("cuda:0"), non_blocking=True),
    "cuda(device=)": lambda: x.cuda(device="cuda:0", memory_format=torch.contiguous_format),
    "to('cuda')": lambda: x.to("cuda"),
    "to('cuda:0', dtype)": lambda: x.to("cuda:0", torch.float16),
    "to(device=)": lambda: x.to(device="cuda", non_blocking=True, copy=True),
    "to(device)": lambda: x.to(torch.device("cuda", 0)),
    "to(number)": lambda: x.to(torch.cuda.current_device()),
    "torch.device": lambda: torch.ones(1, device=torch.device(type="cuda", index=0)),
    "module.cuda()": lambda: nn.Linear(2, 2).cuda().weight,
    "module.to('cuda')": lambda: nn.Linear(2, 2).to("cuda", torch.float64).weight,
    "module.to(device=)": lambda: nn.Linear(2, 2).to(device="cuda").weight,
    "module of device=": lambda: nn.LSTM(2, 2, device="cuda").weight_hh_l0,
    "buffer": lambda: nn.BatchNorm1d(2).cuda().running_mean,
    "zeros": lambda: torch.zeros(2, device="cuda"),
    "randn with a generator": lambda: torch.randn(2, device="cuda", generator=torch.Generator("cuda").manual_seed(1)),
    "randperm": lambda: torch.randperm(3, device="cuda"),
    "tensor": lambda: torch.tensor([1, 2], device="cuda"),
    "as_tensor": lambda: torch.as_tensor([1, 2], device="cuda:0"),
    "empty_like": lambda: torch.empty_like(x, device="cuda"),
    "new_zeros": lambda: x.new_zeros(2, device="cuda"),
    "new_tensor": lambda: x.new_tensor([1.0], device="cuda"),
    "with torch.device": lambda: with_default_device(),
    "set_default_device": lambda: after_default_device(),
    "type(name)": lambda: x.type("torch.cuda.HalfTensor"),
    "type(type)": lambda: x.type(torch.cuda.LongTensor),
    "FloatTensor(sizes)": lambda: torch.cuda.FloatTensor(2, 3),
    "FloatTensor(data)": lambda: torch.cuda.FloatTensor([1.0, 2.0]),
    "storage": lambda: x.untyped_storage().cuda(),
    "Generator": lambda: torch.Generator(device="cuda"),
    "torch.Stream": lambda: torch.Stream(device="cuda"),
    "cuda.Stream": lambda: torch.cuda.Stream(),
    "cuda.Stream of a device": lambda: torch.cuda.Stream(device="cuda:0", priority=-1),
    "current_stream": lambda: torch.cuda.current_stream("cuda:0"),
    "load('cuda')": lambda: load("cuda"),
    "load(device)": lambda: load(torch.device("cuda:0")),
    "load(dictionary)": lambda: load({"cpu": "cuda:0"}),
    "load(function)": lambda: load(lambda storage, _: storage.cuda(0)),
    "in a thread": lambda: in_a_thread(lambda: x.cuda()),
    "in a pool": lambda: concurrent.futures.ThreadPoolExecutor(1).submit(lambda: torch.ones(1, device="cuda")).result(),
}


def with_default_device() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.ones(2)


def after_default_device() -> torch.Tensor:
    torch.set_default_device("cuda")
    try:
        return torch.ones(2)
    finally:
        torch.set_default_device(None)


def load(map_location: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    loaded: torch.Tensor = torch.load(file, map_location=map_location)["x"]
    assert torch.equal(loaded.cpu(), x)
    return loaded


def in_a_thread(function: Any) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("way", ON_THE_DEVICE)
def test_on_the_device(way: str, uses: Uses) -> None:
    made = ON_THE_DEVICE[way]()
    assert torch.device(made.device).type == "flagos"
    assert sum(uses.counts().values()) > 0
    assert all(place[0] == __file__ for place, _ in uses.counts())


def test_the_index_is_kept(uses: Uses) -> None:
    assert x.cuda(1).device == x.to("cuda:1").device == torch.device("flagos:1")
    with torch.cuda.device(1):
        assert x.cuda().device == torch.ones(1, device="cuda").device == torch.device("flagos:1")
        assert torch.cuda.current_device() == 1
    torch.cuda.set_device("cuda:1")
    assert x.to("cuda").device.index == 1
    torch.cuda.set_device(torch.device("cuda:0"))


def sets_a_flag_of_cudnn() -> bool:
    with torch.backends.cudnn.flags(benchmark=True):
        return torch.backends.cudnn.benchmark


#: What torch.cuda answers, and the answer of torch.flagos.
ANSWERS = {
    "is_available": lambda: torch.cuda.is_available() is True,
    "device_count": lambda: torch.cuda.device_count() == torch.flagos.device_count(),
    "get_device_name": lambda: torch.cuda.get_device_name("cuda:0") == torch.flagos.get_device_name(0),
    "get_device_properties": lambda: torch.cuda.get_device_properties(0).total_memory > 0,
    "get_device_capability": lambda: torch.cuda.get_device_capability() == torch.flagos.get_device_capability(),
    "get_arch_list": lambda: torch.cuda.get_arch_list() == [],
    "is_bf16_supported": lambda: torch.cuda.is_bf16_supported(),
    "synchronize": lambda: torch.cuda.synchronize() is None,
    "empty_cache": lambda: torch.cuda.empty_cache() is None,
    "ipc_collect": lambda: torch.cuda.ipc_collect() is None,
    "memory_allocated": lambda: torch.cuda.memory_allocated() == torch.flagos.memory_allocated(),
    "max_memory_allocated": lambda: torch.cuda.max_memory_allocated(0) == torch.flagos.max_memory_allocated(0),
    "memory.memory_reserved": lambda: torch.cuda.memory.memory_reserved() == torch.flagos.memory_reserved(),
    "mem_get_info": lambda: torch.cuda.mem_get_info()[1] == torch.flagos.mem_get_info()[1],
    "memory_summary": lambda: "memory in bytes" in torch.cuda.memory_summary(),
    "get_rng_state": lambda: torch.equal(torch.cuda.get_rng_state(), torch.flagos.get_rng_state()),
    "default_generators": lambda: torch.cuda.default_generators[0].device.type == "flagos",
    "nvtx": lambda: torch.cuda.nvtx.range_push("name") == 0,
    "cudnn": lambda: sets_a_flag_of_cudnn(),
    "is_cuda": lambda: x.cuda().is_cuda and not x.is_cuda,
    "isinstance Stream": lambda: isinstance(torch.cuda.current_stream(), torch.cuda.Stream),
    "isinstance Event": lambda: isinstance(torch.cuda.Event(), torch.cuda.Event),
    "isinstance FloatTensor": lambda: isinstance(x.cuda(), torch.cuda.FloatTensor),
    "no instance": lambda: not isinstance(x, torch.cuda.FloatTensor | torch.cuda.Event | torch.cuda.Stream),
    "isinstance Generator": lambda: isinstance(torch.default_generator, torch.Generator),
    "subclass of Stream": lambda: type(type("Mine", (torch.cuda.Stream,), {})()).__name__ == "Mine",
    "the device's type": lambda: x.cuda().device.type == "flagos",
    "equal devices": lambda: x.cuda().device == torch.device("cuda:0"),
    "is_pinned": lambda: x.pin_memory().is_pinned(),
    "einsum": lambda: torch.einsum("cuda", torch.ones(1, 2, 3, 4).cuda()).shape == (4, 1, 3, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(name: str, uses: Uses) -> None:
    assert ANSWERS[name]()


def test_seeds(uses: Uses) -> None:
    torch.cuda.manual_seed_all(5)
    first = torch.randn(3, device="cuda")
    torch.cuda.manual_seed(5)
    assert torch.equal(first, torch.randn(3, device="cuda"))
    assert torch.cuda.initial_seed() == 5
    assert torch.equal(first.cpu(), torch.randn(3, generator=torch.Generator().manual_seed(5)))


def test_streams_and_events(uses: Uses) -> None:
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        begin.record()
        y = x.cuda() + 1
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize("cuda")
    assert begin.elapsed_time(end) >= 0
    assert side.query()


#: Ways to ask for mixed precision, and the dtype in which a product is computed then.
AUTOCAST = {
    "torch.autocast('cuda')": (lambda: torch.autocast("cuda"), torch.float16),
    "torch.autocast(device_type=)": (lambda: torch.autocast(device_type="cuda", dtype=torch.bfloat16), torch.bfloat16),
    "torch.amp.autocast": (lambda: torch.amp.autocast("cuda"), torch.float16),
    "torch.cuda.amp.autocast": (lambda: torch.cuda.amp.autocast(dtype=torch.bfloat16), torch.bfloat16),
    "disabled": (lambda: torch.autocast("cuda", enabled=False), torch.float32),
}


@pytest.mark.parametrize("way", AUTOCAST)
def test_autocast(way: str, uses: Uses) -> None:
    make, dtype = AUTOCAST[way]
    with make():
        assert (x.cuda() @ x.cuda()).dtype == dtype
        assert torch.is_autocast_enabled("cuda") == torch.is_autocast_enabled() == (way != "disabled")
        assert not torch.is_autocast_enabled("cpu")
    assert (x.cuda() @ x.cuda()).dtype == torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.amp.GradScaler("cuda"),
        lambda: torch.amp.GradScaler(),
        lambda: torch.amp.GradScaler(device="cuda", init_scale=2.0**16),
        lambda: torch.cuda.amp.GradScaler(),
    ],
)
def test_grad_scaler(make: Any, uses: Uses) -> None:
    scaler = make()
    assert scaler.is_enabled()
    assert scaler.scale(torch.ones(1, device="cuda")).item() == 2.0**16


def test_custom_function_with_autocast(uses: Uses) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled("cuda")
            return value * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * torch.full_like(gradient, 2.0, device="cuda")

    value = torch.ones(2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        result = Twice.apply(value)
    result.sum().backward()
    assert result.dtype == torch.float32
    assert value.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("start", ["tensor.backward", "autograd.backward", "autograd.grad"])
def test_in_a_backward_pass(start: str, uses: Uses) -> None:
    """Hooks and recomputation run in a thread of the autograd engine, inside functions that switch modes off."""
    devices = []
    value = torch.ones(2, device="cuda", requires_grad=True)
    value.register_hook(lambda gradient: devices.append(gradient.to("cuda").device))

    def layer(tensor: torch.Tensor) -> torch.Tensor:
        devices.append(torch.ones(2).cuda().device)
        return tensor.to("cuda") * tensor

    loss = checkpoint(layer, value, use_reentrant=False).sum()
    if start == "tensor.backward":
        loss.backward()
    elif start == "autograd.backward":
        torch.autograd.backward(loss)
    else:
        torch.autograd.grad(loss, value)
    assert devices == [torch.device("flagos:0")] * 3


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loader(workers: int, uses: Uses) -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=3, pin_memory=True, num_workers=workers)
    batches = [batch.cuda(non_blocking=True) for (batch,) in loader]
    assert torch.equal(torch.cat(batches).cpu(), torch.arange(6.0))


def test_what_is_not_mapped_says_so(uses: Uses) -> None:
    with pytest.raises(RuntimeError, match="flagos run --as-cuda: this use of CUDA is not mapped to flagos"):
        torch.cuda.cudart()
    if not torch.backends.cuda.is_built():  # else this makes one on CUDA, where there is a device
        with pytest.raises(RuntimeError, match="this use of CUDA is not mapped"):
            torch.UntypedStorage(3, device="cuda")


def test_internal_questions_are_not_the_programs(uses: Uses) -> None:
    torch.manual_seed(0)  # asks torch.cuda to seed as well
    repr(x.to("flagos"))
    assert uses.counts() == {}
    assert uses.report() == ["[flagos as-cuda] nothing to map: the program used no name of CUDA"]


def attributes() -> dict[str, int]:
    """The identity of everything that a replacement could touch."""
    owners = [
        torch, torch.cuda, torch.cuda.amp, torch.cuda.memory, torch.cuda.nvtx, torch.cuda.random, torch.cuda.streams,
        torch.amp, torch.amp.autocast_mode, torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler,
        torch.autograd, torch.autograd.graph, torch.backends.cuda, torch.backends.cudnn, torch.nn.Module, torch.random,
        torch.serialization, torch.Tensor, torch.storage.UntypedStorage, torch.utils.data, threading.Thread,
    ]  # fmt: skip
    found = {f"{owner.__name__}.{name}": id(value) for owner in owners for name, value in vars(owner).items()}
    found["deserializers"] = hash(tuple(torch.serialization._package_registry))
    found["modes"] = torch._C._len_torch_function_stack()
    return found


def test_nothing_is_changed_before_and_after() -> None:
    before = attributes()
    with as_cuda():
        during = attributes()
        x.cuda()
    changed = {name for name in before if before[name] != during[name]}
    assert {"torch.cuda.is_available", "torch.cuda.Stream", "Thread.start", "deserializers", "modes"} <= changed
    after = attributes()
    assert {name for name in before if before[name] != after[name]} == set()


UNTOUCHED = """
import sys, threading, types, torch, torch.cuda.amp, torch.cuda.nvtx
owners = (
    torch, torch.cuda, torch.cuda.memory, torch.cuda.nvtx, torch.cuda.amp, torch.amp, torch.autograd,
    torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler, threading.Thread,
)
wrong = [
    f"{owner.__name__}.{name}"
    for owner in owners
    for name, value in list(vars(owner).items())
    if isinstance(value, types.FunctionType) and "torch_fl" in value.__code__.co_filename
]
print(wrong, torch._C._len_torch_function_stack(), "torch_fl.as_cuda" in sys.modules)
"""


def test_nothing_is_changed_without_the_flag(run_command, tmp_path) -> None:
    (tmp_path / "program.py").write_text(UNTOUCHED)
    assert run_command([*RUN, "program.py"]).check().stdout.split("\n")[0] == "[] 0 False"
    changed = run_command([*RUN, "--as-cuda", "program.py"]).check().stdout
    assert "torch.cuda.is_available" in changed
    assert "Thread.start" in changed
    assert changed.split("\n")[0].endswith("] 1 True")


LISTED = """
import torch
model = torch.nn.Linear(2, 2)
if torch.cuda.is_available():
    for _ in range(3):
        y = torch.ones(1, 2).cuda()
    model.cuda()
    if y.device.type == "cuda" or "cuda:0" == str(y.device):
        print("never")
print(model(y).device)
raise SystemExit(4)
"""


def test_the_list(run_command, tmp_path) -> None:
    (tmp_path / "program.py").write_text(LISTED)
    done = run_command([*RUN, "--as-cuda", "program.py"])
    assert done.returncode == 4
    assert done.stdout == "flagos:0\n"
    lines = done.stderr.splitlines()
    assert lines[0].startswith("[flagos as-cuda] in this process cuda means flagos")
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "[flagos as-cuda] 6 uses of cuda mapped to flagos, at 3 places:",
        "[flagos as-cuda] program.py:4 torch.cuda.is_available × 1",
        "[flagos as-cuda] program.py:6 torch.Tensor.cuda × 3",
        "[flagos as-cuda] program.py:7 torch.Tensor.cuda × 2",
        "[flagos as-cuda] note: program.py:8 compares with 'cuda'; a device's type is 'flagos' here too",
        "[flagos as-cuda] note: program.py:8 compares with 'cuda'; a device's type is 'flagos' here too",
    ]


CHILDREN = """
import multiprocessing, sys, threading, atexit, torch
def work(queue):
    try:
        torch.zeros(1, device="cuda")
        queue.put("mapped")
    except Exception as error:
        queue.put(type(error).__name__)
if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(method, queue.get())
        process.join()
    atexit.register(lambda: print("exit", torch.ones(1).cuda().device))
    threading.Thread(target=lambda: (threading.Event().wait(0.3), print("thread", torch.ones(1).cuda().device))).start()
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a CUDA device the spawned child uses that")
def test_children_threads_and_exit_handlers(run_command, tmp_path) -> None:
    """A forked child goes on with the mapping; a spawned one is a new process, for which nobody gave the flag."""
    (tmp_path / "program.py").write_text(CHILDREN)
    done = run_command([*RUN, "--as-cuda", "program.py"]).check()
    spawned, *rest = done.stdout.splitlines()
    assert spawned.startswith("spawn ")
    assert "mapped" not in spawned
    assert rest == ["fork mapped", "thread flagos:0", "exit flagos:0"]
    assert done.stderr.count("uses of cuda mapped") == 1
