"""Random numbers: one generator a device, seeded, saved and restored as in torch.cuda.

A generator is state in host memory: seeding one touches no device, so a child may be forked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch

from torch_fl import _C
from torch_fl.flagos.index import DEVICE_TYPE, Device, existing_index


class _DefaultGenerators(Sequence[torch.Generator]):
    """The devices' default generators by index, looked up when asked for."""

    def __len__(self) -> int:
        return _C.device_count()

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...

    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        count = len(self)
        if isinstance(index, slice):
            return tuple(_C.default_generator(i) for i in range(*index.indices(count)))
        if not -count <= index < count:
            raise IndexError(f"default_generators[{index}]: out of range; there is one for each of {count} devices")
        return _C.default_generator(index % count)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (_C.default_generator(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(tuple(self))


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator with the same number; `torch.manual_seed` calls this."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seed every device's generator with the same random number."""
    generators = list(default_generators)
    if generators:
        number = generators[0].seed()
        for generator in generators[1:]:
            generator.manual_seed(number)


def initial_seed() -> int:
    """Return the number that the current device's generator was last seeded with."""
    return _C.default_generator(_C.current_device()).initial_seed()


def get_rng_state(device: Device = DEVICE_TYPE) -> torch.Tensor:
    """Return the state of a device's generator as a uint8 tensor on the CPU."""
    return _C.default_generator(existing_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of every device's generator, by index."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Device = DEVICE_TYPE) -> None:
    """Give a device's generator a state that `get_rng_state` returned."""
    _C.default_generator(existing_index(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Give the generators of the devices 0, 1, … these states."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
