# The doors of the project. `make help` lists them.
#
#   PYTHON=/path/python   use this Python as it is, instead of .venv; nothing is installed into it
#   BASE_PYTHON=python3   what .venv is made from
#   TORCH=2.13.0          the torch that a new .venv gets; for `make headers`, the release to check against
#   CMAKE_OPTIONS=…       passed to CMake, such as -DFLAGOS_BOXED_ONLY=ON
SHELL := /bin/bash
BASE_PYTHON ?= $(or $(shell command -v python3.11),python3)
TORCH ?= 2.13.0

ifeq ($(origin PYTHON),command line)
  venv_with = # an existing Python is taken as it is
else
  PYTHON := .venv/bin/python
  venv_with = .venv/stamps/$(1)
endif

bin := $(if $(findstring /,$(PYTHON)),$(dir $(PYTHON)))
cpp_folders = $(wildcard csrc include emulator tests bench examples)
cpp_files = $(if $(cpp_folders),$(shell find $(cpp_folders) -name '*.cpp' -o -name '*.h'))
cpp_tests = build/current/flagos_cpp_tests

.PHONY: help run build test test-full lint format tidy sanitize sanitize-extension bench wheel headers clean
.DEFAULT_GOAL := help

help:
	@echo 'make run         make .venv, install what is missing, build, train a model on flagos'
	@echo 'make build       build the extension into torch_fl/ (offline with PYTHON=/path/python)'
	@echo 'make test        the C++ tests and the Python tests of minutes'
	@echo 'make test-full   the same, the tests that take longer, and every case of torch'"'"'s operator tables (an hour)'
	@echo 'make lint        clang-format, ruff, mypy --strict'
	@echo 'make format      apply clang-format and ruff format'
	@echo 'make tidy        clang-tidy over csrc/ (slow)'
	@echo 'make sanitize    the C++ tests under address, undefined and thread sanitizers, Python tests under the first two'
	@echo 'make bench       the benchmarks'
	@echo 'make wheel       a wheel in dist/'
	@echo 'make headers TORCH=2.11.0   check every source against the headers of that release'
	@echo 'make clean       remove what was built; .venv stays'

# One stamp for each extra of pyproject.toml: what is in .venv is looked at again only after pyproject.toml has changed.
.venv/stamps/%: pyproject.toml scripts/setup_venv.sh scripts/system_packages.sh
	@scripts/system_packages.sh $(BASE_PYTHON)
	@scripts/setup_venv.sh $(BASE_PYTHON) $(TORCH) $*
	@mkdir -p $(@D) && touch $@

build: $(call venv_with,demo)
	@scripts/build.sh $(PYTHON) $(CMAKE_OPTIONS)

run: build
	@$(PYTHON) -c 'import sys; from torch_fl.cli import main; sys.exit(main())' demo

test test-full: build $(call venv_with,test)
	@status=0; \
	if [ -x $(cpp_tests) ]; then $(cpp_tests) --gtest_brief=1 || status=1; \
	else echo 'C++ tests skipped: GoogleTest was not found when CMake ran (Debian: apt-get install libgtest-dev)'; fi; \
	$(PYTHON) -m pytest $(if $(filter test,$@),-m 'not full') || status=1; \
	$(if $(filter test-full,$@),PYTHONPATH=tests/python $(PYTHON) -m opinfo --resume --write || status=1;) \
	exit $$status

# Each tool runs even if the one before it found something: one run names all there is to mend.
lint: $(call venv_with,lint)
	@status=0; \
	$(if $(cpp_files),$(bin)clang-format --dry-run --Werror $(cpp_files) || status=1;) \
	$(bin)ruff check . || status=1; \
	$(bin)ruff format --check . || status=1; \
	$(bin)mypy || status=1; \
	exit $$status

format: $(call venv_with,lint)
	@$(if $(cpp_files),$(bin)clang-format -i $(cpp_files))
	@$(bin)ruff check --fix --exit-zero .
	@$(bin)ruff format .

tidy: build $(call venv_with,tidy)
	@find csrc -name '*.cpp' -print0 \
	  | xargs -0 -P $$(nproc) -n 1 $(bin)clang-tidy -p build/current --quiet

sanitizers := address,undefined thread
sanitize: $(addprefix sanitize-,$(sanitizers)) sanitize-extension
$(addprefix sanitize-,$(sanitizers)): sanitize-%: $(call venv_with,demo)
	@PATH=$$(dirname $(PYTHON)):$$PATH; set -e; \
	cmake -S . -B build/sanitize-$* -G Ninja -DFLAGOS_BUILD_EXTENSION=OFF -DFLAGOS_BUILD_TESTS=ON -DFLAGOS_SANITIZE=$* >/dev/null; \
	cmake --build build/sanitize-$* --parallel $$(nproc); \
	build/sanitize-$*/flagos_cpp_tests --gtest_brief=1

sanitize-extension: $(call venv_with,test)
	@scripts/sanitize_extension.sh $(PYTHON)

bench: build
	@set -e; $(bin)cmake --build build/current --target flagos_bench; \
	if [ -x build/current/flagos_bench ]; then \
	  TORCH_DEVICE_BACKEND_AUTOLOAD=0 LD_LIBRARY_PATH=$$($(PYTHON) -c 'import torch; print(torch.__path__[0])')/lib build/current/flagos_bench; fi; \
	for benchmark in bench/*.py; do echo "== $$benchmark"; $(PYTHON) $$benchmark; done

wheel: $(call venv_with,demo)
	@TORCH_DEVICE_BACKEND_AUTOLOAD=0 PATH=$$(dirname $(PYTHON)):$$PATH \
	  $(PYTHON) -m pip wheel --no-deps --no-build-isolation --wheel-dir dist -v .

headers: $(call venv_with,demo)
	@scripts/check_headers.sh $(PYTHON) $(TORCH)

clean:
	rm -rf build dist torch_fl/_C*.so .mypy_cache .ruff_cache .pytest_cache
