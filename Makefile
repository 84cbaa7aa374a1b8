# make demo   set up, run the quick experiment, print where its figures are
# make test   set up, lint, check types, run the tests
# make test-faults   kills, full disks, SLURM: needs root for tmpfs and SLURM
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= python3

.PHONY: setup demo test lint types unit test-faults clean

setup: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned set into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/python sweep.py experiment=quick

test: lint types unit

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

unit: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-faults: setup
	@$(BIN)/python -m pytest tests/faults

clean:
	rm -rf $(VENV)
