# Every target sets up .venv first when it is missing or stale; that needs Python >= 3.10 and g++, and nvcc where torch
# finds a GPU (FORCE_CUDA=0: never; FORCE_CUDA=1: always). PYTHON names the interpreter; VENV= (empty) uses it as it is.
PYTHON ?= python3
VENV ?= .venv
# Keys of the config that the demo and voc07 are to change: make demo KEYS="SEED 1".
KEYS ?=
# The config that voc07 trains: see docs/recipes.md.
RECIPE ?= configs/voc07_pcl_pytorch_vgg16.yaml
CXX_FILES := $(shell find detector/csrc -type f)

ifeq ($(VENV),)
SETUP :=
WITHIN := PYTHONPATH=.
RUN := $(WITHIN) $(PYTHON)
else
SETUP := $(VENV)/.stamp
WITHIN := PATH="$(abspath $(VENV))/bin:$$PATH"
RUN := $(WITHIN) python
endif

# Exact versions with their hashes, as CI installs them, in place of those that pip finds: make LOCK=1.
LOCK ?=

.PHONY: help demo voc07 test test-all test-gpu chaos bench-cpu bench-gpu lint format docs wheel sdist lock clean
.DELETE_ON_ERROR:

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(SETUP) datasets/toybox/proposals.npz  ## draw toybox, find its proposals, train PCL from image labels, test it: see runs/demo
	$(RUN) tools/train_net.py --config-file configs/toybox_pcl.yaml --resume OUTPUT_DIR runs/demo $(KEYS)
	$(RUN) tools/test_net.py --config-file configs/toybox_pcl.yaml OUTPUT_DIR runs/demo $(KEYS)
	$(RUN) tools/report.py runs/demo

datasets/toybox: | $(SETUP)
	$(RUN) tools/make_toybox.py $@

datasets/toybox/proposals.npz: | datasets/toybox
	$(RUN) tools/make_proposals.py --voc datasets/toybox --mode fast --longest-side 160 --output $@

voc07: $(SETUP)  ## check the files of VOC 2007, train and test RECIPE, compare with the published figures: see docs/voc.md
	$(RUN) tools/voc07.py --config-file $(RECIPE) $(KEYS)

test: $(SETUP)  ## the tests but the slow ones, on every core; those for a GPU are skipped without one
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist worksteal -m "not slow and not chaos"

test-all: $(SETUP)  ## all tests, those that compile too; all but those of make chaos
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist worksteal -m "not chaos"

test-gpu: $(SETUP)  ## the tests that need a GPU
	$(RUN) -m pytest -m cuda

chaos: $(SETUP)  ## repeat kills, full disks, damaged and hostile files, and print a table: see docs/reliability.md
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests/chaos -m chaos -n 0 -s --tb=no

bench-cpu bench-gpu: bench-%: $(SETUP)  ## time the ops beside their peers: see benchmarks/results
	set -e; for script in benchmarks/bench_*.py; do $(RUN) $$script --device $(subst gpu,cuda,$*); done

lint: $(SETUP)  ## formatting, style, types
	$(WITHIN) ruff format --check .
	$(WITHIN) ruff check .
	$(WITHIN) mypy
	$(WITHIN) clang-format --dry-run -Werror $(CXX_FILES)

format: $(SETUP)  ## put the sources in the form that lint wants
	$(WITHIN) ruff format .
	$(WITHIN) ruff check --fix .
	$(WITHIN) clang-format -i $(CXX_FILES)

# Not --quiet: mkdocs counts no warnings then.
docs: $(SETUP)  ## the site, into build/site; a warning is an error
	$(WITHIN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict

wheel: $(SETUP)  ## one wheel for every Python >= 3.10 and torch >= 2.11, into dist; the build's objects are used again
	rm -rf build/lib.* build/bdist.* dist/*.whl
	$(RUN) -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

sdist: $(SETUP)  ## the sources of a wheel, into dist
	rm -f dist/*.tar.gz
	$(RUN) -c 'from setuptools import build_meta; build_meta.build_sdist("dist")'

lock:  ## renew requirements/ci.lock; needs uv
	uv pip compile pyproject.toml --extra test --extra dev --extra docs --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate --upgrade \
	  --custom-compile-command "make lock" --output-file requirements/ci.lock

clean:  ## remove what the build made; .venv, datasets and runs stay
	rm -rf build dist *.egg-info detector/_C*.so $(VENV)/.stamp .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# torch comes first, because the extension is compiled against it: hence --no-build-isolation.
$(VENV)/.stamp: setup.py pyproject.toml $(if $(LOCK),requirements/ci.lock) detector/layers/_extension.py $(CXX_FILES)
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed; PYTHON=... names another" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python >= 3.10 is needed, but $(PYTHON) is " + sys.version.split()[0] + "; PYTHON=... names another")'
	@command -v $${CXX:-c++} >/dev/null || { echo "a C++ compiler is needed: install g++" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: install its package venv (Debian and Ubuntu: apt install python3-venv), or use VENV= with the packages of pyproject.toml installed" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(RUN) -m pip install "setuptools>=78.1.1" ninja "torch>=2.11" "torchvision>=0.26"
else
	$(RUN) -m pip install --quiet --require-hashes -r requirements/ci.lock
endif
	$(RUN) -c 'import runpy; print("detector._C:", runpy.run_path("detector/layers/_extension.py")["recipe"]().note)'
	$(RUN) -m pip install --quiet --no-build-isolation $(if $(LOCK),--no-deps -e .,-e '.[test,dev,docs]')
	@touch $@
