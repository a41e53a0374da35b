"""Runs a program, a script or a module, in this process as Python itself would, for the subcommands that watch one."""

from __future__ import annotations

import argparse
import builtins
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import types
from dataclasses import dataclass
from types import TracebackType

from torch_fl.cli.output import WRONG_USE


@dataclass(frozen=True)
class Ending:
    """How a program ended: what it raised at the end, if anything, with a traceback from its own first frame on."""

    error: BaseException | None

    @property
    def failed(self) -> bool:
        """True unless Python's exit status would be 0."""
        return self.status != 0

    @property
    def status(self) -> int:
        """The exit status that Python would end with; for an interrupt 130, as shells show it."""
        if self.error is None:
            return 0
        if isinstance(self.error, SystemExit):
            code = self.error.code
            if code is None or isinstance(code, int):
                return (code or 0) & 0xFF
            return 1
        if isinstance(self.error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        return 1

    def show(self) -> None:
        """Print what Python would print at such an end: the traceback, or the text given to `sys.exit`."""
        error = self.error
        if isinstance(error, SystemExit):
            if error.code is not None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
        elif error is not None:
            # The program may have set a hook of its own.
            sys.excepthook(type(error), error, error.__traceback__)

    def exception(self) -> BaseException:
        """Return what to raise so that this process ends as the program would have: same status, or death by SIGINT.

        What Python would print must have been shown: from here on it prints nothing.
        """
        if isinstance(self.error, KeyboardInterrupt):
            sys.excepthook = _print_nothing
            return self.error
        return SystemExit(self.status)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `SCRIPT …` and `-m MODULE …`; all that follows belongs to the program."""
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE …", help="run a module instead, as `python -m`"
    )
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="the Python script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="arguments of the script")


def refusal(arguments: argparse.Namespace, command: str) -> int | None:
    """Print what is wrong with the choice of a program and return the exit code for it; None if nothing is."""
    if arguments.module is not None:
        if arguments.module and arguments.script is None:
            return None
        problem = "-m needs the name of a module" if not arguments.module else "give a script or -m MODULE, not both"
    elif arguments.script is None:
        problem = "give a script, or -m MODULE"
    elif os.path.isfile(arguments.script):
        return None
    else:
        problem = f"no such script: {arguments.script}"
    print(f"flagos {command}: {problem}", file=sys.stderr)
    return WRONG_USE


def run_program(arguments: argparse.Namespace) -> Ending:
    """Run what `add_arguments` parsed, as `__main__`, with its own sys.argv and sys.path[0]; never raises."""
    if arguments.module is not None:
        name, *rest = arguments.module
        return _run(name, rest, is_module=True)
    return _run(arguments.script, arguments.arguments, is_module=False)


def _run(name: str, arguments: list[str], is_module: bool) -> Ending:
    sys.argv = [name, *arguments]
    # With -P or PYTHONSAFEPATH Python puts no folder first.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(name))
    try:
        if is_module:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            _run_script(os.path.abspath(name))
    except BaseException as error:  # noqa: BLE001 - SystemExit and interrupts are ends of the program, too
        if isinstance(error, ImportError) and is_module and _frames_of_program(error.__traceback__) is None:
            # runpy's own: there is no such module, or it cannot be run.
            print(f"{sys.executable}: {error}", file=sys.stderr)
            return Ending(SystemExit(1))
        return Ending(error.with_traceback(_frames_of_program(error.__traceback__)))
    return Ending(None)


def _run_script(path: str) -> None:
    """Execute a script as the module `__main__`, which stays there for threads and exit handlers, as under Python.

    `runpy.run_path` would take it away at the end, and change sys.argv[0] to the full path that tracebacks show.
    """
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, main.__dict__)


def _frames_of_program(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's own first frame on; None where it never ran, as after a syntax error."""
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__
        or frames.tb_frame.f_globals.get("__name__")
        in ("runpy", "importlib._bootstrap", "importlib._bootstrap_external")
        or frames.tb_frame.f_code.co_filename.startswith("<frozen")
    ):
        frames = frames.tb_next
    return frames


def _print_nothing(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """An excepthook for an error that has been shown already."""
