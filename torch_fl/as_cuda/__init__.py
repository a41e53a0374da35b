"""`cuda` stands for `flagos` in one process: what `flagos run --as-cuda` puts in force, and nothing else does.

* `names.py`: which values name a CUDA device, and what they become.
* `uses.py`: the list of what was mapped, with counts and places.
* `function_mode.py`: device arguments, through the hook that torch offers for them.
* `replacements.py`: what torch has no hook for; the only file that changes attributes of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch_fl.as_cuda.function_mode import CudaNames
from torch_fl.as_cuda.replacements import Replacements
from torch_fl.as_cuda.uses import Uses

__all__ = ["Uses", "as_cuda"]


@contextmanager
def as_cuda() -> Iterator[Uses]:
    """Let `cuda` stand for flagos until the context ends; yields the growing list of what was mapped.

    The attributes of torch that are replaced belong to the process. Device arguments are mapped in the calling thread,
    in threads that `threading` starts from now on, and in backward passes. Not to be nested.
    """
    uses = Uses()
    mode = CudaNames(uses)
    with ExitStack() as stack:
        stack.enter_context(Replacements(uses, mode))
        stack.enter_context(mode)
        yield uses
