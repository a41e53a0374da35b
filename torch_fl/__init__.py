"""Give PyTorch the device `flagos`: importing this package loads it, and an entry point lets `import torch` do so.

Two import orders meet here, and both must load the device exactly once:

* `import torch` first. At its very end torch calls the entry point in `torch_fl._autoload`, and to reach it Python
  imports this file. torch must not fail because of us, so this file does nothing then, and the entry point decides.
* `import torch_fl` first. This file imports torch, which calls the same entry point while this file is half done. The
  entry point sees `_imported_on_purpose` and leaves at once; a failure is raised here, since somebody asked for us.

Errors: an import on purpose raises ImportError when the extension does not fit the installed torch, and RuntimeError
or ValueError, with every problem in the text, when a setting or a routing file is wrong.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"
__all__ = ["__version__", "load_error"]

load_error: Exception | None = None
"""Why the device could not be loaded; kept only for the `flagos` command, every other import on purpose raises it."""


def _torch_imports_itself() -> bool:
    """True while `import torch` is under way, which means that its entry point is what imports this package."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


_imported_on_purpose = not _torch_imports_itself()

if _imported_on_purpose:
    from torch_fl import loading

    load_error = loading.load_on_purpose()
