# `make scenario NAME=goodput` and `make test` are all that a new machine needs: Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCENARIOS := $(sort $(basename $(notdir $(wildcard scenarios/*.yaml))))

.DEFAULT_GOAL := help
.PHONY: help setup scenario scenarios claims test test-all check format bench clean

help:
	@echo "make scenario NAME=goodput   run one scenario, write results/goodput/"
	@echo "make scenarios               run all: $(SCENARIOS)"
	@echo "make claims                  run all and print the ledger of claims"
	@echo "make test | test-all         tests | with the slow ones"
	@echo "make check                   lint, types, layering"
	@echo "make bench                   speed, as ratios to bare SimPy timeouts"
	@echo "make clean                   remove .venv, caches and results"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "simserve needs Python 3.11 or newer; none was found on PATH" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "simserve needs Python 3.11 or newer; $(PYTHON) is older. Name another: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@echo "setting up $(VENV) (once)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(READY)

scenario: $(READY)
	@test -n "$(NAME)" || { echo "which one? make scenario NAME=..., one of: $(SCENARIOS)" >&2; exit 2; }
	@$(BIN)/simserve run $(NAME) $(ARGS)

scenarios: $(READY)
	@$(BIN)/simserve run $(SCENARIOS) $(ARGS)

claims: scenarios
	@$(BIN)/simserve claims

test: $(READY)
	@$(BIN)/pytest -n 2

test-all: $(READY)
	@$(BIN)/pytest -n 2 -m ''

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find results -mindepth 1 ! -name README.md -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
