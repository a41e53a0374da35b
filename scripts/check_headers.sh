#!/usr/bin/env bash
# Checks every source against the headers of another torch release, without installing that release.
#   scripts/check_headers.sh PYTHON TORCH_VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
python=$("${1:?usage: check_headers.sh PYTHON TORCH_VERSION}" -c 'import sys; print(sys.executable)')
version=${2:?usage: check_headers.sh PYTHON TORCH_VERSION}
export TORCH_DEVICE_BACKEND_AUTOLOAD=0
root=build/headers/$version

if [ ! -f "$root/unpacked" ]; then
  mkdir -p build/wheels
  if ! ls build/wheels/torch-"$version"-*.whl build/wheels/torch-"$version"+*.whl >/dev/null 2>&1; then
    "$python" -m pip download --no-deps --only-binary=:all: --dest build/wheels "torch==$version"
  fi
  rm -rf "$root"
  "$python" - "$version" "$root" <<'UNPACK'
import glob, sys, zipfile

version, root = sys.argv[1:]
(wheel,) = glob.glob(f"build/wheels/torch-{version}-*.whl") + glob.glob(f"build/wheels/torch-{version}+*.whl")
with zipfile.ZipFile(wheel) as archive:
    wanted = ("torch/include/", "torchgen/", "torch/version.py")
    archive.extractall(root, [name for name in archive.namelist() if name.startswith(wanted)])
UNPACK
  touch "$root/unpacked"
fi

PATH=$(dirname "$python"):$PATH
cmake -S . -B "$root/check" -G Ninja -DPython_EXECUTABLE="$python" -DFLAGOS_TORCH_ROOT="$PWD/$root" \
  -DFLAGOS_SYNTAX_ONLY=ON >/dev/null
NINJA_STATUS='[%f/%t, %es] ' cmake --build "$root/check" --parallel "$(nproc)" -- -k 0
echo "every source passes -fsyntax-only against the headers of torch $version"
