# make demo   set up, run the quick experiment, say where its figures lie
# make test   set up, lint, check types, run the tests
# make test-faults   twenty minutes of kills, full disks and clusters
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint types unit test-faults clean

setup: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned set into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r constraints.txt
	@touch $@

demo: setup
	@$(BIN)/python sweep.py experiment=quick remeasure=true
	@echo "figures and tables: results/quick/figures, report: results/quick/report.html"

test: lint types unit

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

unit: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-faults: setup  # kills, full disks, SLURM on this node, Ray; needs root for tmpfs and SLURM
	@$(BIN)/python -m pip install --quiet -c constraints.txt ray==2.60.0
	@$(BIN)/python -m pytest tests/faults -m faults

clean:
	rm -rf $(VENV) data runs wandb
