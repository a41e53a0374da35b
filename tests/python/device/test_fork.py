"""Processes: fork before use works, fork after use is refused with advice, spawn works."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_flagos


def test_fork_before_use(run_python) -> None:
    code = """
        import os, torch
        torch.flagos.is_available(), torch.flagos.device_count(), torch.manual_seed(1)
        child = os.fork()
        if child == 0:
            value = (torch.ones(4, device="flagos", requires_grad=True) * 2).sum()
            value.backward()
            os._exit(0 if value.item() == 8 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(torch.ones(2, device="flagos").sum().item())
    """
    assert run_python(code).check().stdout.strip() == "2.0"


def test_fork_after_use_is_refused_with_advice(run_python) -> None:
    code = """
        import os, torch
        torch.ones(1, device="flagos")
        child = os.fork()
        if child == 0:
            bad = torch.flagos._is_in_bad_fork()
            try:
                torch.ones(1, device="flagos")
            except RuntimeError as error:
                print(bad, str(error), flush=True)
                torch.manual_seed(3)
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(torch.ones(2, device="flagos").sum().item())
    """
    output = run_python(code).check().stdout
    assert output.startswith("True ")
    assert "spawn" in output
    assert "fork" in output
    assert output.rstrip().endswith("2.0")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method: str, run_python) -> None:
    code = f"""
        import torch, torch.multiprocessing as mp
        def work(queue):
            queue.put(torch.ones(3, device="flagos").sum().item())
        if __name__ == "__main__":
            torch.ones(1, device="flagos")
            context = mp.get_context("{method}")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(queue.get(timeout=90))
            process.join()
            raise SystemExit(process.exitcode)
    """
    assert run_python(code).check().stdout.strip() == "3.0"


def test_exit_is_quiet(run_python) -> None:
    code = """
        import threading, torch
        kept = [torch.ones(3, device="flagos"), torch.flagos.Event(), torch.flagos.Stream(), torch.Generator("flagos")]
        threading.Thread(target=lambda: kept.append(torch.ones(2, device="flagos") + 1)).start()
    """
    done = run_python(code).check()
    assert (done.stdout, done.stderr) == ("", "")
