#!/usr/bin/env bash
# Creates .venv where there is none, and installs into it what the given extras of pyproject.toml name.
# torch is never chosen by pip: a torch that is there stays as it is; where there is none, exactly one version is asked for.
set -euo pipefail
cd "$(dirname "$0")/.."
base_python=${1:?usage: setup_venv.sh BASE_PYTHON TORCH_VERSION EXTRAS}
torch_version=$2
extras=$3
export PIP_DISABLE_PIP_VERSION_CHECK=1 TORCH_DEVICE_BACKEND_AUTOLOAD=0

if [ ! -x .venv/bin/python ]; then
  echo "creating .venv from $("$base_python" --version)"
  "$base_python" -m venv .venv
fi
python=.venv/bin/python
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo ".venv has $("$python" --version); torch_fl needs 3.10 or newer. Delete .venv; make … BASE_PYTHON=/path/python3.11" >&2
  exit 1
}

installed_torch() {
  "$python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null
}
if ! installed_torch >/dev/null; then
  echo "installing torch $torch_version"
  "$python" -m pip install --quiet --progress-bar on "torch==$torch_version"
fi
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
echo "torch==$(installed_torch)" >"$constraints"

echo "installing the Python packages for: $extras"
"$python" -m pip install --quiet -c "$constraints" 'scikit-build-core>=0.10' 'cmake>=3.22' ninja pyyaml
# A path entry, the entry points and the extras; the extension itself is built by scripts/build.sh.
"$python" -m pip install --quiet -c "$constraints" --no-build-isolation --config-settings=wheel.cmake=false -e ".[$extras]"
