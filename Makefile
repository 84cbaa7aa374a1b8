# make demo   set up, run the quick experiment, say where its figures lie
# make test   set up, lint, check types, run the tests
# make test-faults   twenty minutes of kills, full disks and clusters
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The Python that makes .venv: the first of these within range, or make PYTHON=/path/to/python.
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
IN_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))
PYTHON ?= $(shell for p in $(PYTHONS); do \
	$$p -c '$(IN_RANGE)' 2>/dev/null && { command -v $$p; break; }; done)

.PHONY: setup demo test lint types unit test-faults clean

setup: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	@test -x $(BIN)/python || { \
		test -n "$(PYTHON)" && "$(PYTHON)" -c '$(IN_RANGE)' 2>/dev/null || { \
			echo "error: Python 3.11 to 3.14 is needed and" \
				"$(if $(PYTHON),$(PYTHON) is not one,none of $(PYTHONS) is one);" \
				"install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }; \
		"$(PYTHON)" -m venv $(VENV); }
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
