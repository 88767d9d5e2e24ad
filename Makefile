# `make` lists what there is. Everything happens in .venv; nothing outside this folder is changed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PINS := pyproject.toml constraints.txt
# Three test processes keep two cores busy, as some wait for programs that they start; each needs about 700 MB. Each
# begins with tests that stand side by side, so that what these share (a built site, a trained run) is made once.
# `make test TEST_PROCESSES=8` on a larger machine.
TEST_PROCESSES ?= 3
# Slow tests run where GRAPHSILO_SLOW is set, as in continuous integration.
MARKS := $(if $(GRAPHSILO_SLOW),,-m "not slow")

.PHONY: help install quickstart test test-flower check bench bench-gate papers mutants docs docs-serve clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | column -t -s '|'

install: .venv/.dev ## set up .venv with everything for development

.venv/.runtime: $(PINS) scripts/install
	@scripts/install runtime
	@touch $@

.venv/.dev: $(PINS) scripts/install
	@scripts/install dev
	@touch .venv/.runtime $@

quickstart: .venv/.runtime ## train on four generated banks; ends with a table and a report
	@rm -rf runs/quickstart
	$(BIN)/graphsilo demo --out runs/quickstart

# What was compiled is kept (`make clean` removes it): each process would compile all tests again, for a dozen seconds.
test: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.dev ## run the tests (GRAPHSILO_SLOW=1: the slow ones too)
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(MARKS)

test-flower: .venv-flower/.done ## run the tests of the Flower engine, which needs an environment of its own
	.venv-flower/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadfile tests/runtime/engines/flower

.venv-flower/.done: pyproject.toml constraints-flower.txt scripts/install
	@scripts/install flower
	@touch $@

check: .venv/.dev ## everything a change must pass: format, lint, types, imports, tests, docs
	@scripts/check

bench: .venv/.dev ## measure cost and scores (an hour; BENCH=--quick for minutes; needs the real graphs)
	$(BIN)/python benchmarks/suite.py $(BENCH)
	$(BIN)/python benchmarks/papers.py --show
	$(BIN)/python benchmarks/between_machines.py --sites 3

bench-gate: .venv/.dev ## has anything become dearer than benchmarks/cost/bounds.yaml allows (a minute)
	$(BIN)/python benchmarks/suite.py --gate

papers: .venv/.dev ## run the papers' comparisons again (hours; PAPERS="opfgl --priority 2" for a part)
	$(BIN)/python benchmarks/papers.py $(PAPERS)

mutants: .venv/.dev ## change the package in random places: do tests notice (MUTANTS="--module evaluate --sample 50")
	$(BIN)/python scripts/mutants.py $(MUTANTS)

docs: .venv/.dev ## build the documentation into site/
	@scripts/check docs
	@echo "open site/index.html"

docs-serve: .venv/.dev ## show the documentation and rebuild it on every change
	$(BIN)/mkdocs serve

clean: ## remove what was built; .venv, runs and measurements stay
	rm -rf site build dist .quickstart .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find src tests scripts examples -name __pycache__ -type d -prune -exec rm -rf {} +
