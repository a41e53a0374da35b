#!/usr/bin/env bash
# Builds the extension for one Python and its torch, incrementally, and puts it into torch_fl/ of this source tree.
# Needs no network: a Python with torch and its headers, a C++20 compiler, CMake and Ninja (or make).
#   scripts/build.sh PYTHON [CMAKE_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?usage: build.sh PYTHON [CMAKE_OPTION...]}
shift
python=$("$python" -c 'import sys; print(sys.executable)')
unset MAKEFLAGS MAKELEVEL # this build is its own, also where CMake drives make
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 # another clone of the project compiles from the same cache
export TORCH_DEVICE_BACKEND_AUTOLOAD=0 # the backend that is about to be built must not be loaded by its own build

tag=$("$python" -c '
import importlib.util, pathlib, runpy, sys
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(f"{sys.executable} has no torch: install torch >= 2.11 there, or name another: make build PYTHON=/path/python")
version = runpy.run_path(str(pathlib.Path(spec.origin).with_name("version.py")))["__version__"]
print(f"{sys.implementation.cache_tag}-torch{version}")')
folder=build/$tag

find_tool() { # the one beside this Python first: it is of the version that pyproject.toml asks for
  local beside
  beside=$(dirname "$python")/$1
  if [ -x "$beside" ]; then echo "$beside"; else command -v "$1"; fi
}
cmake=$(find_tool cmake) || {
  echo "no cmake: install it (pip install cmake, or apt-get install cmake)" >&2
  exit 1
}
if ninja=$(find_tool ninja); then
  generator=(-G Ninja "-DCMAKE_MAKE_PROGRAM=$ninja")
else
  generator=(-G "Unix Makefiles")
fi

options=("${generator[@]}" "-DPython_EXECUTABLE=$python" -DFLAGOS_BUILD_TESTS=ON "$@")
mkdir -p "$folder"
record=$folder/configured_with
wanted=$(printf '%s\n' "$PWD" "$cmake" "${options[@]}")
if [ ! -f "$record" ] || [ "$(cat "$record")" != "$wanted" ]; then
  rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$record" # an option that was dropped must not stay in the cache
  "$cmake" -S . -B "$folder" "${options[@]}"
  echo "$wanted" >"$record"
fi
NINJA_STATUS='[%f/%t, %es] ' "$cmake" --build "$folder" --parallel "$(nproc)"

ln -sfn "$tag" build/current
# install -C leaves an equal file alone, and replaces a differing one under a new inode: running processes keep theirs.
for extension in "$folder"/torch_fl/_C*.so; do
  install -C -m 755 "$extension" "torch_fl/$(basename "$extension")"
done
