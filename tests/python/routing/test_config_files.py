"""Routing files: what they may say, which one wins, and errors that give file, line, column and the nearest name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from parity import sample

pytestmark = pytest.mark.needs_flagos


def write(folder: Path, **files: str) -> str:
    """Writes `name.conf` for each keyword; returns the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.conf").write_text(text)
    return str(folder / f"{next(iter(files))}.conf")


GOOD = {
    "default only": "default = host > none\n",
    "old form": "add.Tensor = host\nabs = none\n",
    "comments and space": "# first\n\n  default=host>none   # why\n\tabs =  none\t\n",
    "no last newline": "default = host > none",
    "windows line ends": "default = host > none\r\nabs = none\r\n",
    "empty": "",
    "torch version": "torch >= 2.10\ndefault = host > none\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_good_file(name: str, tmp_path, extension, device: str) -> None:
    path = write(tmp_path, good=GOOD[name])
    assert [row for row in extension.check_config(path, False) if row["severity"] == "error"] == []
    extension.load_config(path)
    assert extension.config_files() == [path]
    routes = {row["overload"]: row for row in extension.routes()}
    if "abs" in GOOD[name]:
        line = 1 + next(i for i, text in enumerate(GOOD[name].splitlines()) if "abs" in text)
        assert routes["abs"]["route"] == "none"
        assert routes["abs"]["origin"] == f"{path}:{line}"
    x = sample(3)
    assert torch.equal(x.to(device).abs().cpu(), x.abs())


#: text, line, column, words of the message, nearest name it offers
BAD = {
    "misspelt overload": ("default = host > none\nadd.Tensr = host\n", 2, 1, "add.Tensr", "add.Tensor"),
    "unknown overload": ("no_such_thing_at_all = host\n", 1, 1, "no_such_thing_at_all", None),
    "misspelt backend": ("abs = hst\n", 1, 7, "hst", "host"),
    "misspelt second backend": ("abs = host > nnoe\n", 1, 14, "nnoe", "none"),
    "misspelt default": ("deafult = host\n", 1, 1, "deafult", "default"),
    "backend with no kernel": ("abs = cuda > none\n", 1, 7, "cuda", None),
    "duplicate": ("abs = host\nneg = host\nabs = none\n", 3, 1, "abs", None),
    "duplicate default": ("default = host\ndefault = none\n", 2, 1, "default", None),
    "missing backend": ("abs =\n", 1, None, "backend is missing", None),
    "missing equals sign": ("abs host\n", 1, None, "=", None),
    "missing overload": (" = host\n", 1, None, "", None),
    "trailing candidate": ("abs = host >\n", 1, None, "", None),
    "served by the device": ("view = host\n", 1, 1, "served by the device", None),
    "include of nothing": ("include nowhere.conf\n", 1, 9, "nowhere.conf", None),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file(name: str, tmp_path, extension) -> None:
    text, line, column, words, nearest = BAD[name]
    path = write(tmp_path, bad=text)
    before = extension.routes()
    rows = [row for row in extension.check_config(path, False) if row["severity"] == "error"]
    assert rows, "no error"
    assert (rows[0]["file"], rows[0]["line"]) == (path, line)
    assert column is None or rows[0]["column"] == column
    assert words in rows[0]["message"]
    assert nearest is None or nearest in rows[0]["message"]
    assert extension.routes() == before
    if name == "served by the device":
        return  # a warning at load
    with pytest.raises((RuntimeError, ValueError), match=re.escape(f"{path}:{line}:")) as raised:
        extension.load_config(path)
    assert re.search(rf"{re.escape(path)}:{line}:\d+: error: ", str(raised.value))
    assert extension.routes() == before


def test_all_problems_at_once(tmp_path, extension) -> None:
    path = write(tmp_path, bad="abz = host\nabs = hosst\nneg = host\nneg = host\n")
    with pytest.raises((RuntimeError, ValueError)) as raised:
        extension.load_config(path)
    found = re.findall(rf"{re.escape(path)}:(\d+):\d+: error:", str(raised.value))
    assert found == ["1", "2", "4"]


def test_include_and_overlay(tmp_path, extension) -> None:
    path = write(tmp_path, top="include base.conf\nneg = none\n", base="default = host > none\nabs = none\n")
    extension.load_config(path)
    routes = {row["overload"]: row for row in extension.routes()}
    assert routes["abs"]["origin"] == f"{tmp_path / 'base.conf'}:2"
    assert routes["neg"]["origin"] == f"{path}:2"
    assert set(extension.config_files()) == {path, str(tmp_path / "base.conf")}


def test_include_is_relative_to_its_file(tmp_path, extension) -> None:
    (tmp_path / "inner").mkdir()
    path = write(tmp_path, top="include inner/one.conf\n")
    write(tmp_path / "inner", one="include two.conf\n", two="default = host > none\nabs = none\n")
    extension.load_config(path)
    assert {row["overload"]: row["route"] for row in extension.routes()}["abs"] == "none"


@pytest.mark.parametrize("files", [{"a": "include a.conf\n"}, {"a": "include b.conf\n", "b": "\ninclude a.conf\n"}])
def test_include_cycle(files: dict[str, str], tmp_path, extension) -> None:
    path = write(tmp_path, **files)
    rows = [row for row in extension.check_config(path, False) if row["severity"] == "error"]
    assert len(rows) == 1
    assert "cycle" in rows[0]["message"]
    assert "a.conf" in rows[0]["message"]


def test_error_in_an_included_file_names_that_file(tmp_path, extension) -> None:
    path = write(tmp_path, top="include base.conf\n", base="default = host\n\nabz = host\n")
    (row,) = [row for row in extension.check_config(path, False) if row["severity"] == "error"]
    assert (row["file"], row["line"], row["column"]) == (str(tmp_path / "base.conf"), 3, 1)


def test_candidate_named_twice_is_unreachable(tmp_path, extension) -> None:
    path = write(tmp_path, bad="abs = host > none > host\n")
    rows = extension.check_config(path, False)
    assert rows
    assert rows[0]["line"] == 1


def test_chain_without_none_raises_when_nothing_accepts(tmp_path, extension, device: str) -> None:
    """`_copy_from` and its kind aside, the host takes every call; so this uses an operator with no CPU kernel."""
    extension.load_config(write(tmp_path, only="default = host\n"))
    x = sample(3).to(device)
    assert torch.equal((x + x).cpu(), sample(3) * 2)


def test_file_of_the_environment_and_its_log_line(tmp_path, run_python) -> None:
    path = write(tmp_path, mine="default = host > none\nabs = none\n")
    done = run_python(
        "import torch; torch.abs(torch.ones(3, device='flagos'))", FLAGOS_BACKEND_CONFIG=path, FLAGOS_LOG="dispatch"
    ).check()
    lines = done.stderr.splitlines()
    assert lines.count(f"[flagos] loading backend config from {path}") == 1
    assert "[flagos dispatch] abs -> none" in lines


def test_override_beats_the_file(tmp_path, run_python) -> None:
    path = write(tmp_path, mine="default = host > none\nabs = none\n")
    done = run_python(
        "import torch; torch.abs(torch.ones(3, device='flagos'))",
        FLAGOS_BACKEND_CONFIG=path,
        FLAGOS_LOG="dispatch",
        FLAGOS_OP_abs="host",
    ).check()
    assert "[flagos dispatch] abs -> host" in done.stderr.splitlines()


def test_misspelt_overload_in_the_file_of_the_environment(tmp_path, run_python) -> None:
    path = write(tmp_path, mine="default = host > none\n\nadd.Tensro = none\n")
    done = run_python("import torch; print(torch.ones(1).item())", FLAGOS_BACKEND_CONFIG=path).check()
    assert done.stdout.strip() == "1.0"
    assert f"{path}:3:1: error:" in done.stderr
    assert "add.Tensor" in done.stderr


def test_unknown_override_offers_the_nearest_name(run_python) -> None:
    done = run_python("import torch_fl", FLAGOS_OP_add__Tensro="none")
    assert done.returncode != 0
    assert "FLAGOS_OP_add__Tensro" in done.stderr
    assert "add.Tensor" in done.stderr or "add__Tensor" in done.stderr


def test_shipped_files_are_right(extension) -> None:
    import torch_fl

    shipped = sorted((Path(torch_fl.__file__).parent / "configs").glob("*.conf"))
    assert "backends_host.conf" in {path.name for path in shipped}
    assert extension.check_config(str(next(path for path in shipped if path.name == "backends_host.conf")), False) == []
