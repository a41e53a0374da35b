"""Many threads on one device: shared weights and leaves, views, generators, pinning, counters, log, changing routes."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from mix import PIECES, SWAPPED_OVERLOADS, Place, Shared, digest
from stress import memory_settles_at, settled

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 8

pytestmark = pytest.mark.needs_flagos


def in_threads(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """`work(0)`, `work(1)`, … each in its own thread, all started at once; raises the first error."""
    results: list[Any] = [None] * threads
    errors: list[BaseException] = []
    barrier = threading.Barrier(threads)

    def run(index: int) -> None:
        try:
            barrier.wait()
            results[index] = work(index)
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)

    running = [threading.Thread(target=run, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.__name__)
def test_each_piece_in_all_threads_at_once(piece, device: str) -> None:
    """Expected values are the CPU's, computed by one thread."""
    plain, shared = Shared("cpu"), Shared(device)
    seeds = [[100 * index + turn for turn in range(3)] for index in range(THREADS)]
    expected = [[digest(piece(Place("cpu", plain, seed))) for seed in row] for row in seeds]
    actual = in_threads(lambda index: [digest(piece(Place(device, shared, seed))) for seed in seeds[index]])
    assert actual == expected
    assert shared.counted.grad is None or torch.equal(shared.counted.grad.cpu(), plain.counted.grad)


def test_one_graph_walked_by_all_threads(device: str) -> None:
    def gradient(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        shared = Shared(device)
        place = Place(device, shared, 3)
        return shared.network(place.sample(4, 12)).square().sum(), shared.first

    loss, weight = gradient("cpu")
    (expected,) = torch.autograd.grad(loss, weight)
    loss, weight = gradient(device)
    results = in_threads(lambda index: torch.autograd.grad(loss, weight, retain_graph=True)[0])
    assert {digest([result]) for result in results} == {digest([expected])}


def test_leaf_shared_by_all_threads(device: str) -> None:
    """Every thread adds integers to one gradient; sums of small integers do not depend on the order."""
    leaf = torch.zeros(100, device=device, requires_grad=True)

    def add(index: int) -> None:
        for _ in range(20):
            (leaf * (index + 1)).sum().backward()

    in_threads(add)
    assert leaf.grad.tolist() == [20.0 * sum(range(1, THREADS + 1))] * 100


def test_disjoint_parts_of_one_tensor_written_by_all_threads(device: str) -> None:
    def write(x: torch.Tensor, index: int) -> None:
        part = x.view(THREADS, -1)[index]
        for turn in range(50):
            part.add_(index).mul_(0.5)
            x.t()[turn % 4, index * 2 : index * 2 + 2].neg_()

    expected = torch.arange(64, dtype=torch.float32).view(2 * THREADS, 4)
    actual = expected.to(device)
    for index in range(THREADS):
        write(expected, index)
    in_threads(lambda index: write(actual, index))
    assert torch.equal(actual.cpu(), expected)


def test_current_device_and_stream_belong_to_a_thread(device: str, second_device: str) -> None:
    def look(index: int) -> None:
        mine = index % 2
        torch.flagos.set_device(mine)
        stream = torch.flagos.Stream()
        with torch.flagos.stream(stream):
            for _ in range(50):
                assert torch.ones(2, device=device).device.index == mine
                assert torch.flagos.current_device() == mine
                assert torch.flagos.current_stream() == stream
        with torch.flagos.device(1 - mine):
            (torch.ones(2, device=device, requires_grad=True) * 2).sum().backward()
        assert torch.flagos.current_device() == mine

    before = torch.flagos.current_device()
    in_threads(look)
    assert torch.flagos.current_device() == before


def test_one_generator_drawn_from_by_all_threads(device: str) -> None:
    """Whoever draws gets the next number: together they get those that one thread would get."""
    draws = 100
    generator = torch.Generator().manual_seed(7)
    expected = [torch.rand((), generator=generator, dtype=torch.float64).item() for _ in range(THREADS * draws)]

    def draw(_: int) -> list[float]:
        return [torch.rand((), device=device, dtype=torch.float64).item() for _ in range(draws)]

    torch.flagos.manual_seed(7)
    drawn = in_threads(draw)
    assert sorted(number for part in drawn for number in part) == sorted(expected)


def test_generator_state_read_and_set_by_all_threads(device: str) -> None:
    generator = torch.Generator(device=device).manual_seed(5)
    state = generator.get_state()

    def restore(_: int) -> None:
        for _ in range(100):
            generator.set_state(state)
            assert generator.get_state().shape == state.shape
            generator.initial_seed()
            torch.rand(3, device=device, generator=generator)

    in_threads(restore)
    generator.set_state(state)
    expected = torch.rand(5, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.rand(5, device=device, generator=generator).cpu(), expected)


def test_counters_lose_no_call_while_they_are_read(device: str, extension) -> None:
    turns, depth, stop = 20, 100, threading.Event()
    seen = []

    def calls(rows: list[dict[str, Any]]) -> int:
        return sum(row["calls"] for row in rows if row["overload"] == "sgn")

    def read() -> None:
        while not stop.is_set():
            seen.append(calls(extension.route_stats()))
            time.sleep(0.001)

    def count(_: int) -> None:
        leaf = torch.ones(3, device=device, requires_grad=True)
        for _ in range(turns):
            result = leaf
            for _ in range(depth):
                result = result.abs()
            # One call of sgn for each abs, and no GIL between them.
            torch.autograd.grad(result.sum(), leaf)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        in_threads(count)
        in_threads(count)  # threads that have ended leave their shards to new ones
    finally:
        stop.set()
        reader.join()
    assert seen == sorted(seen)
    assert calls(extension.route_stats()) == 2 * THREADS * turns * depth


def test_memory_statistics_add_up(device: str) -> None:
    def counts() -> dict[str, int]:
        stats = torch.flagos.memory_stats()
        return {
            f"{counter}.{field}": stats[f"{counter}.all.{field}"]
            for counter in ("allocated_bytes", "allocation")
            for field in ("current", "allocated", "freed")
        }

    base, before = settled(), counts()
    turns, kept = 100, []

    def allocate(index: int) -> None:
        for turn in range(turns):
            x = torch.empty(16 * (index + 1), dtype=torch.uint8, device=device)
            if turn == 0:
                kept.append(x)
                x = None
            torch.flagos.memory_stats()

    in_threads(allocate)
    after = counts()
    one_turn = sum(16 * (index + 1) for index in range(THREADS))
    grown = {name: after[name] - before[name] for name in after}
    assert grown == {
        "allocated_bytes.current": one_turn,
        "allocated_bytes.allocated": turns * one_turn,
        "allocated_bytes.freed": (turns - 1) * one_turn,
        "allocation.current": THREADS,
        "allocation.allocated": THREADS * turns,
        "allocation.freed": THREADS * (turns - 1),
    }
    kept.clear()
    assert memory_settles_at(base) == 0


def test_no_thread_passes_the_limit(device: str) -> None:
    """Eight threads ask for what seven may have, over and over: at no time is more charged than the limit."""
    base, size = settled(), 2**16
    torch.flagos.reset_peak_memory_stats()
    torch.flagos.set_memory_limit(base + (THREADS - 1) * size)
    refused = []

    def ask(_: int) -> None:
        for turn in range(100):
            try:
                x = torch.empty(size, dtype=torch.uint8, device=device)
                y = x if turn % 2 else None
                del x, y
            except torch.OutOfMemoryError:
                refused.append(turn)

    try:
        in_threads(ask)
        kept = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(THREADS - 1)]
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(size, dtype=torch.uint8, device=device)

        def add_to_full(_: int, full: torch.Tensor = kept[0]) -> None:
            with pytest.raises(torch.OutOfMemoryError):
                full.add(1)

        in_threads(add_to_full)
        del add_to_full
        assert torch.flagos.max_memory_allocated() == base + (THREADS - 1) * size
    finally:
        torch.flagos.set_memory_limit(0)
    del kept
    assert memory_settles_at(base) == 0


def test_routes_swapped_under_calls(device: str, extension) -> None:
    """Every call runs by the route from before or from after, and the counters tell how many went each way."""
    stop, turns = threading.Event(), 300
    x = torch.linspace(-0.9, 0.9, 7)
    on_device, expected = x.to(device), torch.flip(x, [0])

    def swap() -> None:
        while not stop.is_set():
            for route in ("none", "host"):
                extension.set_route("flip", route)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        results = in_threads(lambda index: {digest([torch.flip(on_device, [0])]) for _ in range(turns)})
    finally:
        stop.set()
        swapper.join()
    assert set().union(*results) == {digest([expected])}
    rows = [row for row in extension.route_stats() if row["overload"] == "flip"]
    assert {row["backend"] for row in rows} == {"none", "host"}
    assert sum(row["calls"] for row in rows) == THREADS * turns
    assert all(row["bytes_to_host"] == 28 * row["calls"] for row in rows if row["backend"] == "none")


def test_every_swap_of_the_mix_keeps_the_bits(device: str, extension) -> None:
    """The table of the stress run: under each route alone, every piece gives the CPU's bits."""
    plain = Shared("cpu")
    expected = [digest(piece(Place("cpu", plain, 1))) for piece in PIECES]
    for route in ("none", "host"):
        for overload in SWAPPED_OVERLOADS:
            extension.set_route(overload, route)
        shared = Shared(device)
        actual = [digest(piece(Place(device, shared, 1))) for piece in PIECES]
        assert [piece.__name__ for piece, a, e in zip(PIECES, actual, expected, strict=True) if a != e] == [], route


LOG = """
    import threading, torch
    from torch_fl import _C
    x = torch.ones(3, device="flagos")
    barrier = threading.Barrier(9)
    def work():
        barrier.wait()
        for _ in range(300):
            torch.erfinv(x.view(3, 1))
    def toggle():
        barrier.wait()
        for turn in range(200):
            _C.set_log("dispatch,device" if turn % 2 == 0 else "dispatch")
    _C.set_log("dispatch,device")
    threads = [threading.Thread(target=work) for _ in range(8)] + [threading.Thread(target=toggle)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    _C.set_log("")
"""


def test_log_lines_of_many_threads_are_whole(run_python) -> None:
    lines = run_python(LOG).check().stderr.splitlines()
    assert sum(line == "[flagos dispatch] erfinv -> host" for line in lines) == 8 * 300
    known = re.compile(r"\[flagos (dispatch|device)\] [a-z_.]+( -> host)?")
    assert [line for line in lines if not known.fullmatch(line)] == []


#: Worker processes of each loader. The address sanitizer's allocator does not survive a fork beside busy threads.
LOADER_WORKERS = os.environ.get("TORCH_FL_LOADER_WORKERS", "0,1,2,0")

LOADER = """
    import threading, torch
    from torch.utils.data import DataLoader, TensorDataset
    data = torch.arange(240, dtype=torch.float32).view(60, 4)
    stop = threading.Event()
    weight = torch.ones(4, 4, device="flagos", requires_grad=True)
    failures = []
    def busy():
        try:
            while not stop.is_set():
                (torch.rand(4, 4, device="flagos") @ weight).sum().backward()
                torch.ones(9).pin_memory()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=busy) for _ in range(6)]
    for thread in threads: thread.start()
    def load(number, results):
        try:
            loader = DataLoader(TensorDataset(data), batch_size=4, num_workers=number, pin_memory=True)
            total = torch.zeros(4, device="flagos")
            for epoch in range(3):
                for (batch,) in loader:
                    assert batch.is_pinned()
                    total += batch.to("flagos", non_blocking=True).sum(0)
            results.append(total.cpu())
        except BaseException as error:
            failures.append(error)
    results = []
    loaders = [threading.Thread(target=load, args=(number, results)) for number in map(int, WORKERS.split(","))]
    for thread in loaders: thread.start()
    for thread in loaders: thread.join()
    stop.set()
    for thread in threads: thread.join()
    assert not failures, failures
    assert len(results) == 4 and all(torch.equal(result, 3 * data.sum(0)) for result in results), results
    assert torch.accelerator.current_accelerator().type == "flagos"
"""


def test_pinning_loaders_beside_training(run_python) -> None:
    """Loaders with and without worker processes; those are forked while other threads train on the device."""
    run_python(LOADER.replace("WORKERS", repr(LOADER_WORKERS)), OMP_NUM_THREADS="1").check()


@pytest.mark.parametrize("piece", PIECES[:4], ids=lambda piece: piece.__name__)
def test_threads_that_end_leave_nothing(piece, device: str) -> None:
    shared = Shared(device)
    in_threads(lambda index: piece(Place(device, shared, index)))
    shared.counted.grad = None
    gc.collect()
    base = settled()
    for _ in range(3):
        in_threads(lambda index: piece(Place(device, shared, index)))
        shared.counted.grad = None
    assert memory_settles_at(base) == 0
