"""Cases in forked workers: each way in which one can end, through Python and torch, and what the caller is left with.

Workers are forked from a process that has not used the device, so every test runs a program of its own.
"""

from __future__ import annotations

import json
import textwrap

import pytest

pytestmark = pytest.mark.needs_flagos

#: Body and printing shared by the programs.
PRELUDE = """
    import ctypes, json, os, signal, subprocess, sys, threading, time
    import torch
    from torch_fl.survey import Outcome, Verdict, run_isolated

    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    def no_children():
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        return False

    def passes(case):
        return Verdict.PASS, case
"""


def test_each_end_is_charged_to_its_case_alone(run_python) -> None:
    code = """
        def segfault():
            torch.ones(3, device="flagos").sin_()
            ctypes.string_at(0)

        def out_of_memory():
            torch.flagos.set_memory_limit(1 << 20, 0)
            try:
                kept = [torch.empty(1 << 18, dtype=torch.uint8, device="flagos") for _ in range(9)]
            finally:
                torch.flagos.set_memory_limit(0, 0)

        def backward():
            x = torch.full((3,), 2.0, device="flagos", requires_grad=True)
            (x * x).sum().backward()
            return Verdict.PASS, str(x.grad.tolist())

        def host_memory():
            raise MemoryError("none left")

        def missing():
            return torch.ones(3, device="flagos") @ torch.ones(4, device="flagos")

        BODIES = {
            "value": lambda: (Verdict.PASS, str(torch.ones(3, device="flagos").sum().item())),
            "backward": backward,
            "wrong": lambda: (Verdict.WRONG, "3 \\udcff 4"),
            "raise": missing,
            "exit": lambda: sys.exit(3),
            "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT) or time.sleep(30),
            "nothing": lambda: None,
            "name": lambda: ("pass", ""),
            "limit": out_of_memory,
            "memory": host_memory,
            "segfault": segfault,
            "abort": os.abort,
            "leave": lambda: os._exit(0),
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "hang": lambda: time.sleep(1000),
            "child": lambda: (Verdict.PASS, "") if subprocess.run(["echo", "from a child"]).returncode == 0 else None,
        }

        def body(case):
            sys.stdout.write("out " + case)
            os.write(1, b",")
            sys.stderr.write("err " + case + ";")
            return BODIES[case]() if case in BODIES else passes(case)

        before = descriptors()
        cases = [case for name in BODIES for case in (name, name + " between")]
        for workers in (1, 2):
            rows = []
            run_isolated(cases, body, rows.append, workers=workers, timeout_seconds=2)
            assert descriptors() == before and no_children()
            assert not torch.flagos.is_initialized()
            print(json.dumps([[*vars(o).values(), o.verdict.value] for o in rows], default=str))
    """
    expected = {  # verdict, a part of the detail, signal
        "value": ("pass", "3.0", 0),
        "backward": ("pass", "[4.0, 4.0, 4.0]", 0),
        "wrong": ("wrong", "3 \\udcff 4", 0),
        "raise": ("error", "RuntimeError: ", 0),
        "exit": ("error", "SystemExit: 3", 0),
        "interrupt": ("error", "KeyboardInterrupt", 0),
        "nothing": ("error", "must return (Verdict, str), not None", 0),
        "name": ("error", "must return (Verdict, str), not ('pass', '')", 0),
        "limit": ("out_of_memory", "limit of 1048576 bytes", 0),
        "memory": ("out_of_memory", "MemoryError: none left", 0),
        "segfault": ("crash", "signal 11", 11),
        "abort": ("crash", "signal 6", 6),
        "leave": ("crash", "exit status 0", 0),
        "kill": ("crash", "signal 9", 9),
        "hang": ("hang", "no result after 2 s", 0),
        "child": ("pass", "", 0),
    }
    lines = run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code)).check().stdout.splitlines()
    assert len(lines) == 2
    for workers, line in enumerate(lines, start=1):
        rows = {row[0]: row[1:] for row in json.loads(line)}
        assert sorted(rows) == sorted([*expected, *(f"{name} between" for name in expected)])
        for case, (_, detail, output, signal, seconds, worker, verdict) in rows.items():
            wanted = expected.get(case, ("pass", case, 0))
            assert (verdict, signal) == (wanted[0], wanted[2]), case
            assert wanted[1] in detail, case
            assert output.startswith(f"out {case},err {case};"), case
            assert 0 <= worker < workers
            assert seconds >= (2 if case == "hang" else 0)
        assert rows["child"][2].endswith(";from a child\n")
        assert "in segfault" in rows["segfault"][2]
        assert "in missing" in rows["raise"][1]


def test_outcomes_of_many_cases(run_python) -> None:
    code = """
        counts, workers = {}, set()
        def hear(outcome):
            counts[outcome.case] = counts.get(outcome.case, 0) + 1
            workers.add(outcome.worker)
            assert outcome.detail == outcome.case and outcome.stderr == ""
        run_isolated([str(i) for i in range(3000)], passes, hear, workers=3)
        print(len(counts), set(counts.values()), workers <= {0, 1, 2})

        big = []
        run_isolated(["a", "b"], lambda case: (Verdict.WRONG, case * 5_000_000), big.append)
        print([o.detail == o.case * 5_000_000 for o in big])
        run_isolated([], passes, big.append)
        print(len(big))
    """
    assert run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code)).check().stdout.splitlines() == [
        "3000 {1} True",
        "[True, True]",
        "2",
    ]


def test_set_up_runs_once_in_each_worker(run_python) -> None:
    code = """
        prepared = []
        def set_up():
            print("set up speaks")
            prepared.append(torch.ones(2, device="flagos"))
        def body(case):
            if case == "crash":
                os._exit(1)
            return Verdict.PASS, f"{len(prepared)} {prepared[0].sum().item()}"
        outcomes = []
        run_isolated(["a", "b", "crash", "c"], body, outcomes.append, set_up=set_up)
        print([(o.case, o.detail, o.stderr) for o in outcomes], len(prepared))

        def failing():
            print("looking")
            raise KeyError("no such set-up")
        for bad in (failing, lambda: os._exit(7)):
            try:
                run_isolated(["a"], body, outcomes.append, set_up=bad)
            except RuntimeError as error:
                print(" | ".join(str(error).splitlines()))
        print(len(outcomes), no_children())
    """
    first, failed, died, last = run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code)).check().stdout.splitlines()
    assert (
        first
        == str(
            [
                (case, detail, "")
                for case, detail in (("a", "1 2.0"), ("b", "1 2.0"), ("crash", "exit status 1"), ("c", "1 2.0"))
            ]
        )
        + " 0"
    )
    assert "no such set-up" in failed
    assert "looking" in failed
    assert "died outside of a case" in died
    assert "exit status 7" in died
    assert last == "4 True"


def test_exceptions_of_the_caller_come_through(run_python) -> None:
    code = """
        before = descriptors()
        def body(case):
            if case == "interrupt":
                os.kill(os.getppid(), signal.SIGINT)
            if case != "fine":
                time.sleep(1000)
            return passes(case)

        heard = []
        try:
            run_isolated(["fine", "sleep", "interrupt"], body, heard.append, workers=2)
        except KeyboardInterrupt:
            print("interrupted", [o.case for o in heard], no_children(), descriptors() == before)

        def refuse(outcome):
            raise LookupError(outcome.case)
        try:
            run_isolated(["fine", "sleep", "sleep"], body, refuse, workers=2)
        except LookupError as error:
            print("refused", error, no_children(), descriptors() == before)

        after = []
        run_isolated(["fine"], body, after.append)
        print(after[0].verdict, torch.ones(2, device="flagos").sum().item())
    """
    assert run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code)).check().stdout.splitlines() == [
        "interrupted ['fine'] True True",
        "refused fine True True",
        "Verdict.PASS 2.0",
    ]


def test_refusals(run_python) -> None:
    code = """
        def refused(error, *args, **kwargs):
            try:
                run_isolated(["a"], passes, print, **kwargs)
            except error as raised:
                print(raised)
        refused(ValueError, workers=0)
        refused(ValueError, timeout_seconds=0)
        refused(ValueError, timeout_seconds=float("nan"))
        torch.ones(1, device="flagos")
        refused(RuntimeError)
        child = os.fork()
        if child == 0:
            refused(RuntimeError)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
    """
    workers, limit, nan, *used = (
        run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code)).check().stdout.splitlines()
    )
    assert "workers must be 1 or more, not 0" in workers
    assert "timeout_seconds must be more than 0" in limit
    assert "timeout_seconds must be more than 0" in nan
    assert len([line for line in used if "has used one" in line and "fresh process" in line]) >= 2


def test_inside_pytest_and_a_thread(run_python, tmp_path) -> None:
    # pytest replaces sys.stdout and descriptor 1; a thread of the caller keeps running while workers do.
    test = tmp_path / "test_inside.py"
    test.write_text(
        "import sys, threading, time\n"
        "from torch_fl.survey import Verdict, run_isolated\n"
        "def test_inside():\n"
        "    ticks, done = [], threading.Event()\n"
        "    def tick():\n"
        "        while not done.wait(0.01):\n"
        "            ticks.append(1)\n"
        "    thread = threading.Thread(target=tick)\n"
        "    thread.start()\n"
        "    def body(case):\n"
        "        print('printed'); print('wrote', file=sys.stderr); time.sleep(0.2)\n"
        "        return Verdict.PASS, ''\n"
        "    outcomes = []\n"
        "    run_isolated(['a'], body, outcomes.append)\n"
        "    done.set(); thread.join()\n"
        "    assert outcomes[0].stderr == 'printed\\nwrote\\n' and ticks\n"
    )
    code = f"""
        import sys, pytest
        raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", {str(test)!r}]))
    """
    assert "1 passed" in run_python(code).check().stdout
