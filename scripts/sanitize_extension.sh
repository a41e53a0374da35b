#!/usr/bin/env bash
# Builds the extension with the address and undefined-behaviour sanitizers, and runs Python tests on that build.
# The build, a copy of the package and a Python that finds this copy are in build/sanitize-extension; torch_fl/ of the
# source tree keeps its own extension.
#   [CMAKE_OPTIONS=...] scripts/sanitize_extension.sh PYTHON [--build-only | TEST...]
# without TEST: those of tests/sanitizers/tests.txt
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?usage: sanitize_extension.sh PYTHON [--build-only | TEST...]}
shift
python=$("$python" -c 'import sys; print(sys.executable)')
compiler=${CXX:-c++}
folder=$PWD/build/sanitize-extension
unset MAKEFLAGS MAKELEVEL
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
PATH=$(dirname "$python"):$PATH

TORCH_DEVICE_BACKEND_AUTOLOAD=0 cmake -S . -B "$folder" -G Ninja "-DPython_EXECUTABLE=$python" \
  -DFLAGOS_SANITIZE=address,undefined -DFLAGOS_BOXED_ONLY=OFF ${CMAKE_OPTIONS:-} >/dev/null
TORCH_DEVICE_BACKEND_AUTOLOAD=0 NINJA_STATUS='[%f/%t, %es] ' cmake --build "$folder" --parallel "$(nproc)"

# The package is copied around the extension, so that its configs are found beside it.
package=$folder/package
rm -rf "$package"
mkdir -p "$package"
cp -r torch_fl "$package/"
rm -f "$package"/torch_fl/_C*.so
cp "$folder"/torch_fl/_C*.so "$package/torch_fl/"

# PYTHONPATH is not enough: an editable install of this project comes before it. A plain path line in another environment's
# .pth brings the folders of packages that $python has, without what else their own .pth files do.
"$python" -m venv --without-pip --clear "$folder/venv"
sanitized=$folder/venv/bin/python
{
  echo "$package"
  "$python" -c '
import subprocess, sys
command = [sys.executable, "-S", "-c", "import sys; print(*sys.path, sep=chr(10))"]
without_packages = subprocess.check_output(command, text=True).split("\n")
print(*(folder for folder in sys.path if folder not in without_packages), sep="\n")'
  echo 'import undefined_reports'
} >"$("$sanitized" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages.pth"

# The runtime must come first in the process, and the C++ library with it: it looks for __cxa_throw when it starts.
library_path() { realpath "$("$compiler" "-print-file-name=$1")"; }
undefined_library=$(library_path libubsan.so)
runtime=$(library_path libasan.so):$undefined_library:$(library_path libstdc++.so.6)
# GCC's runtime for undefined behaviour does not read log_path, but has a function for it; each Python calls it as it starts.
cat >"$package/undefined_reports.py" <<PYTHON
import ctypes
ctypes.CDLL("$undefined_library").__sanitizer_set_report_path(b"$folder/reports/undefined")
PYTHON
rm -rf "$folder/reports"
mkdir -p "$folder/reports"
report() {
  status=$?
  unset LD_PRELOAD
  if [ -n "$(ls -A "$folder/reports")" ]; then
    head -n 30 "$folder"/reports/*
    grep -h "SUMMARY\|runtime error" "$folder"/reports/* | sort | uniq -c || true
    echo "sanitizer reports: $(find "$folder/reports" -type f | wc -l), in build/sanitize-extension/reports" >&2
    status=1
  fi
  exit $status
}
trap report EXIT

# A compiler, which a test runs, leaves its memory to the system.
printf '#!/bin/sh\nunset LD_PRELOAD\nexec %s "$@"\n' "$compiler" >"$folder/compiler"
chmod +x "$folder/compiler"
export CXX=$folder/compiler

suppressions=$PWD/tests/sanitizers
export LD_PRELOAD=$runtime
# malloc_context_size: of a leak only the function that allocated is looked at, so that the suppressions, which name Python and
# torch, do not cover what these have called us for. To see whole stacks: ASAN_OPTIONS=malloc_context_size=30.
# allocator_may_return_null: tests ask for more memory than there is, and expect an exception.
# log_path: pytest takes stderr, and a test may expect a program to fail; each process writes its reports to a file.
options=detect_leaks=1:malloc_context_size=2:allocator_may_return_null=1:log_path=$folder/reports/address
export ASAN_OPTIONS=$options:suppressions=$suppressions/address.txt${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export LSAN_OPTIONS=print_suppressions=0:suppressions=$suppressions/leak.txt
export UBSAN_OPTIONS=print_stacktrace=1:suppressions=$suppressions/undefined.txt${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export PYTHONMALLOC=malloc # Python's own pools hide overflows from the sanitizer
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
export TORCH_FL_STRESS_ITERATIONS=${TORCH_FL_STRESS_ITERATIONS:-60} TORCH_FL_PROGRAM_TIMEOUT=600
# GCC 12's allocator keeps its locks over a fork: where another thread holds one, the child waits for ever.
export TORCH_FL_LOADER_WORKERS=0,0,0,0

# Python puts the folder of a program first, and that of the shell for `-c` and `-m`: here it must not be the source tree.
found=$(cd "$package" && "$sanitized" -c 'import torch_fl._C; print(torch_fl._C.__file__)')
case $found in
  "$package"/*) ;;
  *)
    echo "the sanitized extension is not the one that Python imports: $found" >&2
    exit 1
    ;;
esac
if [ "${1:-}" = --build-only ]; then
  exit 0
fi
if [ $# -eq 0 ]; then
  mapfile -t tests < <(grep -v '^#' tests/sanitizers/tests.txt)
  set -- "${tests[@]}"
fi
echo 'import pytest, sys; sys.exit(pytest.main())' >"$package/run_pytest.py"
"$sanitized" "$package/run_pytest.py" -p no:cacheprovider -m 'not full' --timeout 900 "$@"
