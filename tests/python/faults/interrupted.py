"""Trains on flagos while SIGINT arrives at random moments, and after each few checks that the device is as it was.

    python tests/python/faults/interrupted.py INTERRUPTS SEED

Prints a JSON object: how many interrupts came, in which activity, how many checks were made, and the problems found.
"""

from __future__ import annotations

import collections
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import time

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, TensorDataset

from torch_fl import _C

#: Seconds without a check after which the run counts as hanging; it then ends with the stacks of all threads.
HANG_SECONDS = 60
INTERRUPTS_PER_CHECK = 15


class Cube(torch.autograd.Function):
    """x³, with a backward in Python, where interrupts can arrive."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def copied(state):
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu().clone(), state)


class Training:
    """A small model and its optimizer, always started from the same state."""

    def __init__(self, device: str, **form: bool) -> None:
        torch.default_generator.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, **form)
        self.batch = torch.arange(24, dtype=torch.float32).view(4, 6).sin().to(device)
        self.step()
        self.start = copied([dict(self.model.state_dict()), self.optimizer.state_dict()])
        self.restore()

    def restore(self) -> None:
        model, optimizer = copied(self.start)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.optimizer.zero_grad()
        Cube.apply(self.model(self.batch)).square().mean().backward()
        self.optimizer.step()

    def result(self) -> list[torch.Tensor]:
        """The parameters after two steps from the start."""
        self.restore()
        self.step()
        self.step()
        return [parameter.detach().cpu() for parameter in self.model.parameters()]


def drawn(device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(4)
    return torch.rand(5, device=device, generator=generator).cpu()


def swap_routes() -> None:
    try:
        _C.set_route("flip", "none")
        _C.set_timing(True)
        torch.ones(4, device="flagos").flip(0)
    finally:
        _C.set_timing(False)
        _C.clear_route_overrides()


def pin(loader: DataLoader) -> None:
    for (batch,) in loader:
        if not batch.is_pinned():
            raise AssertionError("a batch is not pinned")
        batch.to("flagos", non_blocking=True).sum().item()


class Beside(threading.Thread):
    """Computes on the device all the while: were a lock left held, it would stand still."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.stop = False
        self.weight = torch.ones(4, 4, device="flagos", requires_grad=True)

    def run(self) -> None:
        while not self.stop:
            (gradient,) = torch.autograd.grad((torch.rand(4, 4, device="flagos") @ self.weight).sum(), self.weight)
            gradient.cpu()
            del gradient
            self.rounds += 1
            time.sleep(0.0005)


def main(interrupts: int, seed: int) -> int:
    trainings = {
        "fused": Training("flagos", fused=True),
        "foreach": Training("flagos", foreach=True),
        "plain": Training("flagos", foreach=False),
    }
    expected = {name: Training("cpu", fused=name == "fused", foreach=name == "foreach").result() for name in trainings}
    expected_draw = drawn("cpu")
    loader = DataLoader(TensorDataset(torch.arange(32.0).view(8, 4)), batch_size=2, pin_memory=True)
    activities = {
        **{name: training.step for name, training in trainings.items()},
        "routes": swap_routes,
        "pinning": lambda: pin(loader),
        "statistics": lambda: (torch.flagos.route_stats(), torch.flagos.memory_stats(), torch.flagos.routes()),
        "allocation": lambda: [torch.ones(n, device="flagos").resize_(2 * n) for n in range(1, 20)],
        "generator": lambda: (torch.rand(9, device="flagos"), torch.flagos.manual_seed(3), drawn("flagos")),
    }
    beside = Beside()
    beside.start()
    armed, came = False, collections.Counter()
    current = "none"

    def interrupt(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    stop, choices = threading.Event(), random.Random(seed)

    def send() -> None:
        while not stop.wait(choices.random() ** 2 * 0.01):
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    problems: list[str] = []
    base = routes = None
    rounds = checks = 0

    def check() -> None:
        nonlocal base, routes, rounds, checks
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        for name, training in trainings.items():
            if not all(map(torch.equal, training.result(), expected[name])):
                problems.append(f"check {checks}: two steps of {name} differ from the CPU's, after {current}")
            training.optimizer.zero_grad()
        if not torch.equal(drawn("flagos"), expected_draw):
            problems.append(f"check {checks}: numbers drawn differ, after {current}")
        _C.clear_route_overrides()
        now = torch.flagos.routes()
        routes = routes or now
        if now != routes or torch.flagos.current_device() != 0:
            problems.append(f"check {checks}: routes or the current device have changed, after {current}")
        gc.collect()
        # The thread beside holds at most the tensors of one round; at some moment it holds none.
        least = torch.flagos.memory_allocated()
        if base is None:
            base = least = min(torch.flagos.memory_allocated() for _ in range(3000))
        end = time.monotonic() + 10
        while least != base and time.monotonic() < end:
            least = min(least, torch.flagos.memory_allocated())
        if least != base:
            problems.append(f"check {checks}: {least - base} bytes are left, after {current}")
        while beside.rounds == rounds:
            time.sleep(0.001)  # the watchdog ends this
        rounds, checks = beside.rounds, checks + 1

    check()
    sender.start()
    names = sorted(activities)
    while came.total() < interrupts:
        try:
            armed = True
            while True:
                current = choices.choice(names)
                activities[current]()
        except KeyboardInterrupt:
            came[current] += 1
        armed = False
        if came.total() % INTERRUPTS_PER_CHECK == 0:
            check()
    armed = False
    stop.set()
    sender.join()
    check()
    beside.stop = True
    beside.join()
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"interrupts": came.total(), "in": came, "checks": checks, "problems": problems}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
