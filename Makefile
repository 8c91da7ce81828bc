# Everything runs in .venv, which the first call creates. Paths are relative, so the checkout may lie
# in a directory with spaces, and modules are run with -m, so no generated script's first line matters.
PYTHON ?= python3
ENV := .venv
RUN := $(ENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cluster test-torch-sparse chaos lint format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: $(ENV)/.installed  ## create .venv and install the package with its development tools

$(ENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: Python 3.11 or newer is needed (got $$($(PYTHON) --version 2>&1)); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Creating $(ENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(ENV) || { \
	  echo "error: Python's venv module is incomplete; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(ENV); exit 2; }
	@touch $@

# torch comes first, so that everything built or resolved afterwards sees the one that is pinned.
$(ENV)/.installed: $(ENV)/.created pyproject.toml constraints.txt
	@echo "Installing torch (about half a minute, once)"
	@$(PIP) torch
	@echo "Installing cocn and its dependencies (one to two minutes, once)"
	@$(PIP) --editable '.[dev]'
	@touch $@

demo: setup  ## raw graph to trained models to MLflow comparison, in about three minutes
	@$(RUN) -m jobs.cli demo

test: setup  ## run the tests
	@$(RUN) -m pytest $(PYTEST_ARGS)

test-cluster: setup  ## tests that start several Ray nodes on this machine; takes minutes
	@$(RUN) -m pytest -m cluster $(PYTEST_ARGS)

$(ENV)/.torch-sparse: $(ENV)/.installed
	@echo "Installing torch-scatter and torch-sparse (compiles for many minutes unless pip has the wheels cached)"
	@$(PIP) setuptools wheel ninja
	@$(PIP) --no-build-isolation torch-scatter torch-sparse
	@touch $@

test-torch-sparse: $(ENV)/.torch-sparse  ## build the extra [torch-sparse] and compare both propagation back ends
	@$(RUN) -m pytest -m torch_sparse $(PYTEST_ARGS)

CHAOS_ARGS ?= --faults 1000 --seed 0 --time-budget 1h
chaos: setup  ## faults at random moments of small jobs, one line of JSON each in chaos.jsonl; an hour at the most
	@$(RUN) -m tests.chaos $(CHAOS_ARGS)

lint: setup  ## ruff and mypy
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

format: setup  ## let ruff fix and format
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: setup  ## run the benchmarks
	@$(RUN) -m jobs.cli bench all

clean:  ## remove caches, builds and .venv; runs and stores stay
	rm -rf $(ENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
