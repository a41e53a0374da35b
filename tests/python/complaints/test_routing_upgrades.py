"""Complaint 17, routes that break when tables are made anew or a kernel library is upgraded: found at load, by name.

Torch-FL#155, Torch-FL#150, Torch-FL#218
"""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

#: A line that was right once or elsewhere, and what the error must say beside the line's place.
STALE = {
    "backend that is not installed": ("add.Tensor = flaggems > host > none", "flaggems"),
    "backend of another accelerator": ("mm = gcu > none", "gcu"),
    "misspelt backend": ("mm = hots > none", "host"),
    "overload that was renamed": ("add.Tensr = host > none", "add.Tensor"),
    "overload of no torch": ("no_such_operator_at_all = host", "no_such_operator_at_all"),
    "line given twice": ("mm = host\nmm = none", "mm"),
}


@pytest.mark.parametrize("name", STALE)
def test_stale_line_is_found_at_load(name: str, extension, tmp_path) -> None:
    line, word = STALE[name]
    file = tmp_path / "stale.conf"
    file.write_text(f"default = host > none\n{line}\n")
    before = extension.routes()
    with pytest.raises((RuntimeError, ValueError)) as raised:
        extension.load_config(str(file))
    text = str(raised.value)
    assert word in text, text
    assert "stale.conf:" in text
    assert extension.routes() == before, "a refused file must leave the routes in force"


def test_every_route_in_force_names_a_kernel_that_is_there(extension) -> None:
    available = {row["name"] for row in extension.backends() if row["available"]}
    for row in extension.routes():
        named = [candidate.split("(")[0].strip() for candidate in row["route"].split(">")]
        assert set(named) <= available, row
        assert named[-1] == "none", row


def test_every_problem_of_a_file_in_one_error(extension, tmp_path) -> None:
    file = tmp_path / "many.conf"
    file.write_text("\n".join(line for line, _ in STALE.values() if "\n" not in line) + "\n")
    with pytest.raises((RuntimeError, ValueError)) as raised:
        extension.load_config(str(file))
    assert len([line for line in str(raised.value).splitlines() if "many.conf:" in line]) >= 5


def test_a_broken_file_leaves_torch_and_says_the_line(run_python, tmp_path) -> None:
    file = tmp_path / "old.conf"
    file.write_text("default = host > none\nmm = flaggems > none\n")
    done = run_python("import torch; print(torch.ones(2).sum().item())", FLAGOS_BACKEND_CONFIG=str(file)).check()
    assert done.stdout.strip() == "2.0"
    assert "old.conf:2" in done.stderr


def test_changing_routes_changes_no_result(extension, device: str) -> None:
    x = torch.arange(12.0, device=device).view(3, 4)
    expected = (x @ x.t()).softmax(1).cpu()
    for overload in ("mm", "_softmax"):
        extension.set_route(overload, "none")
        assert torch.equal((x @ x.t()).softmax(1).cpu(), expected)
