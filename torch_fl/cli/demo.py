"""`flagos demo`: train a small convolutional network on flagos, then on the CPU, and compare the two."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torch_fl.cli.output import FINE, FOUND_SOMETHING, WRONG_USE, Commands, bytes_text, new_command, print_json, table
from torch_fl.cli.trace import bill, totals

_SEED = 20
_EPOCHS = 8
_BATCH = 64
_TEST_IMAGES = 360
_LEARNING_RATE = 2e-3
_WARM_UP_STEPS = 2


def add_command(commands: Commands) -> None:
    """Add `demo` to the parser."""
    parser = new_command(
        commands,
        "demo",
        "train a small network on 1,797 images of digits, on flagos and on the CPU, and compare the two",
        "flagos demo --epochs 3",
        run,
    )
    parser.add_argument("--epochs", type=int, default=_EPOCHS, metavar="N", help=f"default {_EPOCHS}")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


@dataclass
class Digits:
    """The data, on the CPU: images float32 [n, 1, 8, 8] in 0 … 1, labels int64 [n]."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


@dataclass
class Training:
    """What a training run gave: the loss of each step as float32 [steps] on the CPU, seconds, and test accuracy."""

    losses: torch.Tensor
    seconds: float
    accuracy: float


def run(arguments: argparse.Namespace) -> int:
    """Train twice and print the comparison; 1 if the losses differ in a bit, 2 if a package is missing."""
    from torch_fl import flagos

    if arguments.epochs < 1:
        print(f"flagos demo: --epochs must be at least 1, but is {arguments.epochs}", file=sys.stderr)
        return WRONG_USE
    try:
        digits = load_digits()
        from tqdm import tqdm
    except ImportError as error:
        print(
            f"flagos demo: {error}.\nThe demo needs scikit-learn (for its images of digits) and tqdm: "
            "pip install 'torch_fl[demo]', or `make run`, which installs them.",
            file=sys.stderr,
        )
        return WRONG_USE

    steps = 2 * arguments.epochs * batches_in_epoch(digits)
    # disable=None: no bar where stderr is not a terminal.
    with tqdm(total=steps, unit="step", disable=None) as bar:
        bar.set_description("flagos")
        warm_up(digits, "flagos")
        flagos.reset_route_stats()
        ours = train(digits, "flagos", arguments.epochs, bar)
        rows = bill(flagos.route_stats())
        bar.set_description("cpu")
        warm_up(digits, "cpu")
        theirs = train(digits, "cpu", arguments.epochs, bar)

    result = compare(ours, theirs) | totals(rows)
    result["images"] = len(digits.train_images)
    result["epochs"] = arguments.epochs
    if arguments.json:
        print_json(result | {"rows": rows})
    else:
        _print(result)
    return FINE if result["differing_losses"] == 0 else FOUND_SOMETHING


def load_digits() -> Digits:
    """Return scikit-learn's images of handwritten digits; they are part of that package. ImportError without it."""
    from sklearn import datasets

    data = datasets.load_digits()
    images = torch.from_numpy(data.images).float().div_(16).unsqueeze_(1)
    labels = torch.from_numpy(data.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(_SEED))
    images, labels = images[order], labels[order]
    return Digits(images[:-_TEST_IMAGES], labels[:-_TEST_IMAGES], images[-_TEST_IMAGES:], labels[-_TEST_IMAGES:])


def build_network() -> nn.Sequential:
    """Return the network, [n, 1, 8, 8] to [n, 10], with weights drawn from the CPU's generator."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def batches_in_epoch(digits: Digits) -> int:
    """Return the number of steps in an epoch; the last, smaller batch counts."""
    return -(-len(digits.train_images) // _BATCH)


def warm_up(digits: Digits, device: str) -> None:
    """Run a few steps that are not timed: the first calls set up thread pools and kernels, whoever comes first."""
    network = build_network().to(device)
    images, labels = digits.train_images[:_BATCH].to(device), digits.train_labels[:_BATCH].to(device)
    for _ in range(_WARM_UP_STEPS):
        nn.functional.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]


def train(digits: Digits, device: str, epochs: int, bar: Any) -> Training:
    """Train on a device from a fixed seed: the same weights, batches and order whatever the device is."""
    torch.manual_seed(_SEED)
    network = build_network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    loss_function = nn.CrossEntropyLoss()
    images, labels = digits.train_images.to(device), digits.train_labels.to(device)
    losses: list[torch.Tensor] = []

    started = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(images)), _BATCH):
            chosen = batch.to(device)
            optimizer.zero_grad()
            loss = loss_function(network(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            bar.update()
    # Reading the losses waits for the device.
    all_losses = torch.stack(losses).cpu()
    seconds = time.perf_counter() - started

    network.eval()
    with torch.no_grad():
        right = network(digits.test_images.to(device)).argmax(1) == digits.test_labels.to(device)
    return Training(all_losses, seconds, right.float().mean().item())


def compare(ours: Training, theirs: Training) -> dict[str, Any]:
    """Return both results and in how many losses they differ; bits are compared, so a NaN equals itself."""
    different = ours.losses.view(torch.int32) != theirs.losses.view(torch.int32)
    return {
        "accuracy": ours.accuracy,
        "cpu_accuracy": theirs.accuracy,
        "training_seconds": ours.seconds,
        "cpu_training_seconds": theirs.seconds,
        "final_loss": ours.losses[-1].item(),
        "cpu_final_loss": theirs.losses[-1].item(),
        "losses": len(ours.losses),
        "differing_losses": int(different.sum()),
        "first_difference": int(different.int().argmax()) if bool(different.any()) else None,
    }


def _print(result: dict[str, Any]) -> None:
    print(
        f"Trained on {result['images']} images of digits, {result['epochs']} epochs, the same seed on both devices.\n"
    )
    rows = [
        [
            name,
            f"{result[prefix + 'accuracy']:.2%}",
            f"{result[prefix + 'final_loss']:.6f}",
            f"{result[prefix + 'training_seconds']:.2f}",
        ]
        for name, prefix in (("flagos", ""), ("cpu", "cpu_"))
    ]
    print(table(["device", "test accuracy", "last loss", "seconds"], rows, right=[1, 2, 3]))
    ratio = result["training_seconds"] / result["cpu_training_seconds"]
    print(f"\ntime             {ratio:.2f} x the CPU's")
    backends = ", ".join(f"{name} {calls:,}" for name, calls in result["calls_by_backend"].items())
    print(f"calls            {result['calls']:,} ({backends})")
    trips = f"{bytes_text(result['bytes_to_host'])} to the host, {bytes_text(result['bytes_from_host'])} back"
    print(f"round trips      {result['round_trips']:,} ({trips})")
    if result["differing_losses"] == 0:
        print(f"losses           all {result['losses']} equal the CPU's bit for bit")
    else:
        print(
            f"losses           {result['differing_losses']} of {result['losses']} differ from the CPU's, "
            f"the first at step {result['first_difference']}"
        )
