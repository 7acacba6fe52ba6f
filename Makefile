# Every target first sets up .venv if it is missing or outdated. This needs Python >= 3.10 and g++, and nvcc where torch
# finds a GPU (FORCE_CUDA=0: never; FORCE_CUDA=1: always). PYTHON is the interpreter; with VENV= (empty) it is used directly.
PYTHON ?= python3
VENV ?= .venv
# Config keys for the demo and voc07: make demo KEYS="SEED 1".
KEYS ?=
# Options of tools/make_toybox.py.
TOYBOX ?=
# The config that voc07 trains (docs/recipes.md).
RECIPE ?= configs/voc07_pcl_pytorch_vgg16.yaml
CXX_FILES := $(shell find detector/csrc -type f -not -name '*.md')

ifeq ($(VENV),)
SETUP :=
SETUP_DEV :=
WITHIN := PYTHONPATH=.
RUN := $(WITHIN) $(PYTHON)
else
SETUP := $(VENV)/.stamp
SETUP_DEV := $(VENV)/.stamp-dev
WITHIN := PATH="$(abspath $(VENV))/bin:$$PATH"
RUN := $(WITHIN) python
endif

# LOCK=1 installs the exact versions of requirements/ci.lock, as CI does.
LOCK ?=

.PHONY: help demo voc07 test test-all test-gpu chaos bench-cpu bench-gpu lint format docs wheel sdist lock clean
.DELETE_ON_ERROR:

help:  ## print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(SETUP) datasets/toybox/proposals.npz  ## draw Toybox, make its proposals, train PCL from image labels and a Faster R-CNN from its boxes, test both, write a report to runs/demo
	$(RUN) -m detector train configs/toybox_pcl.yaml --to detector --effort 1 OUTPUT_DIR runs/demo $(KEYS)

datasets/toybox: | $(SETUP)
	$(RUN) tools/make_toybox.py $@ $(TOYBOX)

datasets/toybox/proposals.npz: | datasets/toybox
	$(RUN) -m detector propose --voc datasets/toybox --mode fast --longest-side 160 --output $@

voc07: $(SETUP)  ## check the files of VOC 2007, train and test RECIPE, compare with published results (docs/voc.md)
	$(RUN) tools/voc07.py --config-file $(RECIPE) $(KEYS)

test: $(SETUP_DEV)  ## run the tests except the slow ones, on all cores; GPU tests are skipped without a GPU
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist worksteal -m "not slow and not chaos"

test-all: $(SETUP_DEV)  ## run all tests, also the slow ones, except those of make chaos
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist worksteal -m "not chaos"

test-gpu: $(SETUP_DEV)  ## run the tests that need a GPU
	$(RUN) -m pytest -m cuda

chaos: $(SETUP_DEV)  ## test kills, full disks, damaged and hostile files, and print a table (docs/reliability.md)
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests/chaos -m chaos -n 0 -s --tb=no

bench-cpu bench-gpu: bench-%: $(SETUP_DEV)  ## benchmark the ops against the alternatives (benchmarks/results)
	set -e; for script in benchmarks/bench_*.py; do $(RUN) $$script --device $(subst gpu,cuda,$*); done

lint: $(SETUP_DEV)  ## check formatting, style and types
	$(WITHIN) ruff format --check .
	$(WITHIN) ruff check .
	$(WITHIN) mypy
	$(WITHIN) clang-format --dry-run -Werror $(CXX_FILES)

format: $(SETUP_DEV)  ## format the sources and fix lint errors
	$(WITHIN) ruff format .
	$(WITHIN) ruff check --fix .
	$(WITHIN) clang-format -i $(CXX_FILES)

# With --quiet, mkdocs would not count warnings.
docs: $(SETUP_DEV)  ## build the site in build/site; warnings are errors
	$(WITHIN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict

wheel: $(SETUP)  ## build a wheel in dist for every Python >= 3.10 and torch >= 2.11; with CUDA kernels, for torches with that CUDA
	rm -rf build/lib.* build/bdist.* dist/*.whl
	$(RUN) -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

sdist: $(SETUP)  ## build the source distribution in dist
	rm -f dist/*.tar.gz
	$(RUN) -c 'from setuptools import build_meta; build_meta.build_sdist("dist")'

lock:  ## update requirements/ci.lock; needs uv
	uv pip compile pyproject.toml --extra test --extra dev --extra docs --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate --upgrade \
	  --custom-compile-command "make lock" --output-file requirements/ci.lock

clean:  ## remove build products; keep .venv, datasets and runs
	rm -rf build dist *.egg-info detector/_C*.so $(VENV)/.stamp* .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The extension is compiled against torch, so torch is installed first and --no-build-isolation is used.
$(VENV)/.stamp: setup.py pyproject.toml $(if $(LOCK),requirements/ci.lock) detector/layers/_extension.py $(CXX_FILES)
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed; PYTHON=... names another" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python >= 3.10 is needed, but $(PYTHON) is " + sys.version.split()[0] + "; PYTHON=... names another")'
	@command -v $${CXX:-c++} >/dev/null || { echo "a C++ compiler is needed: install g++" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: install its package venv (Debian and Ubuntu: apt install python3-venv), or use VENV= with the packages of pyproject.toml installed" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(RUN) -m pip install "setuptools>=78.1.1" ninja "torch>=2.11" "torchvision>=0.26"
else
# uv unpacks several packages at a time, in half of pip's time. pip does it where uv cannot.
	sed -n '/^uv==/,/[^\\]$$/p' requirements/ci.lock >$(VENV)/uv.lock
	$(RUN) -m pip install --quiet --require-hashes -r $(VENV)/uv.lock && $(RUN) -m uv pip install --quiet --require-hashes \
	  $${PIP_FIND_LINKS:+--find-links "$$PIP_FIND_LINKS"} -r requirements/ci.lock || \
	  $(RUN) -m pip install --quiet --no-compile --require-hashes -r requirements/ci.lock
endif
	$(RUN) -c 'import runpy; print("detector._C:", runpy.run_path("detector/layers/_extension.py")["recipe"]().note)'
	$(RUN) -m pip install --quiet --no-build-isolation $(if $(LOCK),--no-deps -e .,-e '.[train]')
	@touch $@

# What tests, benchmarks, lint and docs need beyond training. requirements/ci.lock has it all.
$(VENV)/.stamp-dev: $(VENV)/.stamp
	$(if $(LOCK),,$(RUN) -m pip install --quiet --no-build-isolation -e '.[test,dev,docs]')
	@touch $@
