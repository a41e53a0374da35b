#!/usr/bin/env bash
# Makes sure that the machine has a compiler, Python's headers and venv module, and (optional) ccache and GoogleTest.
# As root on Debian it installs what is missing; elsewhere it says what to install, and fails only if a build needs it.
set -euo pipefail
base_python=${1:?usage: system_packages.sh PYTHON}

needed=() wanted=()
command -v g++ >/dev/null || needed+=(g++)
command -v "$base_python" >/dev/null || needed+=(python3 python3-dev python3-venv)
if command -v "$base_python" >/dev/null; then
  "$base_python" -c 'import ensurepip, venv' 2>/dev/null || needed+=(python3-venv)
  "$base_python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    needed+=(python3-dev)
fi
command -v ccache >/dev/null || wanted+=(ccache)
echo '#include <gtest/gtest.h>' | g++ -E -x c++ - >/dev/null 2>&1 || wanted+=(libgtest-dev)

missing=("${needed[@]}" "${wanted[@]}")
if ((${#missing[@]} == 0)); then exit 0; fi

if ((EUID == 0)) && command -v apt-get >/dev/null; then
  echo "installing what this machine lacks: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then exit 0; fi
  echo "apt-get failed; missing: ${missing[*]}" >&2
else
  echo "missing: ${missing[*]}. On Debian: sudo apt-get install ${missing[*]}" >&2
fi
if ((${#needed[@]})); then
  echo "cannot build without: ${needed[*]}" >&2
  exit 1
fi
