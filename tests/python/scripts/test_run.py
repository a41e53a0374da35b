"""`flagos run` runs a program as Python does: arguments, paths, `__main__`, exit status; `flagos trace` likewise."""

from __future__ import annotations

import signal
import sys

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

PYTHON = [sys.executable]
RUN = [sys.executable, "-m", "torch_fl.cli", "run"]

#: What a program can do that Python and `flagos run` must show in the same way.
PROGRAMS = {
    "name and arguments": "import sys; print(sys.argv, __name__, __file__, sys.path[0])",
    "main module": """
import __main__, sys
print(__main__.__file__, sys.modules["__main__"] is __main__, "x" in vars(__main__))
""",
    "import beside it": "import beside; print(beside.__name__)",
    "pickle of its class": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)",
    "exit None": "import sys; print(end='x'); sys.exit(None)",
    "exit 7": "import sys; sys.exit(7)",
    "exit 256 + 3": "import sys; sys.exit(259)",
    "exit text": "import sys; sys.exit('good bye')",
    "exit object": "import sys; sys.exit((1, 2))",
    "error": "def f():\n    raise ValueError('boom')\nf()",
    "chained error": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "syntax error": "x = (",
    "missing import": "import no_such_module",
    "interrupt": "raise KeyboardInterrupt",
    "its own excepthook": """
import sys
sys.excepthook = lambda kind, error, trace: print("hook", kind.__name__)
raise ValueError("boom")
""",
    "exit handlers": "import atexit; atexit.register(print, 'at exit'); print('end'); raise ValueError('boom')",
    "a thread that goes on": """
import pickle, threading, time
class C: pass
def work():
    time.sleep(0.3)
    print("thread", pickle.dumps(C()) is not None)
threading.Thread(target=work).start()
print("end")
""",
    "os._exit": "import os; print('now', flush=True); os._exit(5)",
    "broken pipe of its own": "raise BrokenPipeError('pipe')",
    "spawned child": """
import multiprocessing
def work(queue): queue.put(__name__)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
""",
}


@pytest.fixture
def both(tmp_path, run_command):
    """`both(arguments)` runs them under Python and under `flagos run`."""

    def run(arguments: list[str]) -> list[tuple[int, str, str]]:
        (tmp_path / "beside.py").write_text("")
        ends = [run_command([*command, *arguments]) for command in (PYTHON, RUN)]
        return [(end.returncode, end.stdout, end.stderr) for end in ends]

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_under_python(name: str, both, tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[name] + "\n")
    python, ours = both(["program.py", "--epochs", "1", "-m", "x", "--help"])
    assert ours == python
    assert python[0] != 0 or python[1] or "exit" in name, "the program shows something"


@pytest.mark.parametrize("name", ["name and arguments", "exit 7", "import beside it"])
def test_module_as_under_python(name: str, both, tmp_path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(PROGRAMS[name] + "\n")
    (package / "program.py").write_text("import package; " + PROGRAMS[name] + "\n")
    for module in ("package", "package.program"):
        python, ours = both(["-m", module, "--epochs", "1", "-m", "x"])
        assert ours == python


def test_the_interrupt_is_one_for_shells(run_command, tmp_path) -> None:
    (tmp_path / "program.py").write_text("raise KeyboardInterrupt\n")
    assert run_command([*RUN, "program.py"]).returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give a script, or -m MODULE"),
        (["missing.py"], "no such script: missing.py"),
        (["-m"], "-m needs the name of a module"),
        (["--no-such-option", "program.py"], "--no-such-option"),
    ],
)
@pytest.mark.parametrize("command", ["run", "trace"])
def test_wrong_use(command: str, arguments: list[str], problem: str, capsys, monkeypatch, tmp_path) -> None:
    from torch_fl.cli import main

    monkeypatch.chdir(tmp_path)
    try:
        code = main([command, *arguments])
    except SystemExit as end:  # argparse's own
        code = end.code
    assert code == 2
    assert problem in capsys.readouterr().err


def test_a_module_that_is_not_there(run_command) -> None:
    done = run_command([*RUN, "-m", "no_such_module"])
    assert done.returncode == 1
    assert "No module named no_such_module" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("end", "status"), [("7", 7), ("'text'", 1)])
def test_trace_tells_the_status_of_the_script(end: str, status: int, run_command, tmp_path) -> None:
    """Its own exit code stays 1, found something: it has been asked for the bill."""
    (tmp_path / "program.py").write_text(f"import sys; sys.exit({end})\n")
    done = run_command([*RUN[:-1], "trace", "program.py"])
    assert done.returncode == 1
    assert f"the script ended with exit status {status}" in done.stderr
    assert f'"script_status": {status}' in run_command([*RUN[:-1], "trace", "--json", "program.py"]).stdout


def test_trace_runs_modules(run_command, tmp_path) -> None:
    (tmp_path / "program.py").write_text("import torch, sys; torch.ones(2, device='flagos') + 1; print(sys.argv[1:])\n")
    done = run_command([*RUN[:-1], "trace", "-m", "program", "--top", "3"]).check()
    assert "['--top', '3']" in done.stdout
    assert "add.Tensor" in done.stdout


HINTS = {
    "cuda without the flag": ("torch.ones(1).cuda()", "flagos run --as-cuda"),
    "an error without a hint": ("raise ValueError('boom')", None),
}


@pytest.mark.parametrize("name", HINTS)
def test_hint(name: str, run_command, tmp_path) -> None:
    code, hint = HINTS[name]
    if "cuda" in code and torch.backends.cuda.is_built():
        pytest.skip("this torch is built for CUDA, where .cuda() raises another error, or none")
    (tmp_path / "program.py").write_text(f"import torch\n{code}\n")
    done = run_command([*RUN, "program.py"])
    assert done.returncode == 1
    assert (hint in done.stderr) if hint else ("[flagos]" not in done.stderr)
