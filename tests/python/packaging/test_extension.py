"""The extension links only torch's device-neutral libraries and the system's, and is compiled without CUDA headers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.needs_flagos

ROOT = Path(__file__).parents[3]
COMPILE_COMMANDS = ROOT / "build" / "current" / "compile_commands.json"

TORCH_LIBRARIES = {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so"}
SYSTEM_LIBRARIES = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libdl|libpthread|ld-linux[\w-]*)\.so(\.\d+)?")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def needed_libraries(shared_object: str) -> list[str]:
    """The libraries that a shared object asks the loader for."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf (Debian: binutils) is missing")
    done = subprocess.run([readelf, "-d", "-W", shared_object], capture_output=True, text=True, check=True)
    return NEEDED.findall(done.stdout)


def is_allowed(library: str) -> bool:
    return library in TORCH_LIBRARIES or SYSTEM_LIBRARIES.fullmatch(library) is not None


def include_folders(command: str) -> list[str]:
    """The folders of -I, -isystem, -iquote and -idirafter, whether joined to the option or its next word."""
    words = shlex.split(command)
    folders = []
    for position, word in enumerate(words):
        for option in ("-isystem", "-iquote", "-idirafter", "-I"):
            if word == option:
                folders.append(words[position + 1])
            elif word.startswith(option):
                folders.append(word.removeprefix(option))
            else:
                continue
            break
    return folders


def names_cuda(folder: str) -> bool:
    """Whether the folder is CUDA's; where this project and torch are installed does not count."""
    for home in (str(Path(torch.__file__).parents[1]), str(ROOT)):
        folder = folder.removeprefix(home)
    return "cuda" in folder.lower()


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("libtorch_cpu.so", True),
        ("libc.so.6", True),
        ("ld-linux-x86-64.so.2", True),
        ("ld-linux-aarch64.so.1", True),
        ("libc10_cuda.so", False),
        ("libtorch_cuda.so", False),
        ("libcudart.so.13", False),
        ("libcrypto.so.3", False),
        ("libgomp.so.1", False),
    ],
)
def test_the_check_of_libraries_itself(library: str, allowed: bool) -> None:
    assert is_allowed(library) == allowed


def test_needed_libraries(extension) -> None:
    needed = needed_libraries(extension.__file__)
    assert "libc10.so" in needed, "readelf printed no library of torch, so it was not understood"
    assert [library for library in needed if not is_allowed(library)] == []


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("c++ -Icsrc -I include -c a.cpp", ["csrc", "include"]),
        ("c++ -isystem /torch/include -isystem/x -iquote y a.cpp", ["/torch/include", "/x", "y"]),
        ("c++ -O2 a.cpp", []),
    ],
)
def test_the_check_of_folders_itself(command: str, folders: list[str]) -> None:
    assert include_folders(command) == folders
    assert names_cuda("/usr/local/cuda-13.0/include")
    assert not names_cuda("/usr/include")


def test_no_cuda_include_path() -> None:
    if not COMPILE_COMMANDS.exists():
        pytest.skip("build/current/compile_commands.json is missing: the extension was not built in this tree")
    commands = json.loads(COMPILE_COMMANDS.read_text())
    folders = {folder for entry in commands for folder in include_folders(entry["command"])}
    assert any(folder.endswith("torch/include") for folder in folders), "no folder of torch: nothing was checked"
    assert sorted(folder for folder in folders if names_cuda(folder)) == []
