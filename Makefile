# Needs Python 3.11 and make; everything else is installed into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
PINS := pyproject.toml setup.cfg constraints.txt
DEBIAN_PACKAGES := chromium ceph-mon ceph-osd radosgw postgresql

.PHONY: help demo ui test lint format bench bench-quick install debian-packages constraints clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

demo: .venv/demo.stamp  ## pack examples/photos.yaml into demo/ and print the table
	@$(BIN)/dataset-packaging pack examples/photos.yaml
	@echo
	@echo "The web UI with these datasets, their lineage, checks and history:  make ui"

ui: .venv/demo.stamp  ## the Dagster web UI over examples/
	@$(BIN)/dataset-packaging ui

test: .venv/test.stamp  ## install what the tests need, then run the whole suite
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/test.stamp  ## style, types, import rules
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports >.venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log; exit 1; }

format: .venv/test.stamp  ## rewrite the code in the house style
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: .venv/bench.stamp  ## every floor, every peer, three rounds; the table and the plot of docs/performance.md
	@$(BIN)/python -m benchmarks

bench-quick: .venv/bench.stamp  ## ours and the floors, under two minutes
	@$(BIN)/python -m benchmarks --quick

install: .venv/test.stamp  ## the environment of demo, test and lint, without running anything

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 is needed (python3.11 or python3 on the PATH, or make PYTHON=...)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "The pinned dependencies are for Python 3.11; $(PYTHON) is another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv .venv

.venv/demo.stamp: .venv/bin/python $(PINS)
	@echo "Installing the pinned dependencies into .venv ..."
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/test.stamp: .venv/bin/python $(PINS)
	@echo "Installing the pinned dependencies into .venv ..."
	@$(PIP) install --constraint constraints.txt --editable '.[test,dev,train,readers,deploy]'
	@$(BIN)/python -m venv .venv/daft && .venv/daft/bin/python -m pip -qq --disable-pip-version-check install daft==0.7.26
	@touch $@ .venv/demo.stamp

.venv/bench.stamp: .venv/demo.stamp
	@$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

debian-packages:  ## as root on Debian: the browser and the servers that some tests use
	@missing=$$(for name in $(DEBIAN_PACKAGES); do \
	    dpkg-query -W -f '$${Status}' $$name 2>/dev/null | grep -q 'install ok installed' || echo $$name; done); \
	  test -z "$$missing" || { apt-get update -qq >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing >/dev/null; }

constraints: .venv/test.stamp .venv/bench.stamp  ## write down what .venv holds, after changing a pin
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable; } >.venv/constraints.txt
	@mv .venv/constraints.txt constraints.txt

clean:  ## remove the environment and the demo's output
	@rm -rf .venv demo build dist *.egg-info
