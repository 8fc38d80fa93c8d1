# Everything sets itself up: `make demo` and `make test` need Python >= 3.11 and nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Without compiling everything, a minute: Python compiles what is imported.
INSTALL := $(PIP) install --no-compile -c constraints.txt
# And keeps it, whatever the surroundings say: tests start Python hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

SAMPLES := src/spikehtr/assets

.PHONY: demo workbench test test-slow test-all lint format clean
.DELETE_ON_ERROR:

demo: .venv/.core
	@mkdir -p demo
	$(BIN)/spikehtr transcribe $(SAMPLES)/labour-court-1858.jpg $(SAMPLES)/sample-page.jpg --confidences --min-confidence 0.5
	$(BIN)/spikehtr transcribe $(SAMPLES)/labour-court-1858.jpg $(SAMPLES)/sample-page.jpg --overlay -f page -o demo
	$(BIN)/spikehtr inspect $(SAMPLES)/sample-line.png -o demo/inkcoder.png
	$(BIN)/spikehtr inspect $(SAMPLES)/sample-line.png --reduction -m bundled -o demo/reduction.png
	@echo "to read and correct these pages in a browser: make workbench"

# The workbench in the browser, on copies of the sample pages.
workbench: .venv/.web
	@mkdir -p demo/workbench
	@cp -n $(SAMPLES)/labour-court-1858.jpg $(SAMPLES)/sample-page.jpg demo/workbench/
	$(BIN)/spikehtr serve demo/workbench

test: .venv/.dev
	$(BIN)/python -m pytest

# What `make test` leaves out.
test-slow: .venv/.dev
	$(BIN)/python -m pytest -m slow

test-all: .venv/.dev
	$(BIN)/python -m pytest -m "slow or not slow"

lint: .venv/.dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/write_reference.py --check

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv

NEEDED := pyproject.toml constraints.txt $(wildcard src/spikehtr/readers/cpu/native/*)

.venv/.core: .venv/bin/python $(NEEDED)
	$(INSTALL) -e .
	@touch $@

.venv/.web: .venv/bin/python $(NEEDED)
	$(INSTALL) -e '.[web]'
	@touch .venv/.core $@

.venv/.dev: .venv/bin/python $(NEEDED)
	$(INSTALL) -e '.[dev,oracle,export,pdf]'
	@touch .venv/.core .venv/.web $@

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
