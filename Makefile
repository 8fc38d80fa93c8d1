# Everything sets itself up: `make demo` and `make test` need Python >= 3.11 and nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

PAGE := src/spikehtr/assets/sample-page.jpg
MODEL := src/spikehtr/assets/model.safetensors

.PHONY: demo test lint format clean
.DELETE_ON_ERROR:

demo: .venv/.core
	@mkdir -p demo
	$(BIN)/spikehtr inspect src/spikehtr/assets/sample-line.png -T 4 -o demo/inkcoder.png
	$(BIN)/spikehtr profile --counts --preset tiny
	$(if $(wildcard $(MODEL)),,@echo "No model is bundled: the page's lines are found and drawn, not read.")
	$(BIN)/spikehtr transcribe $(PAGE) --overlay -f page -o demo $(if $(wildcard $(MODEL)),,--lines-only)

test: .venv/.dev
	$(BIN)/python -m pytest

lint: .venv/.dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv

NEEDED := pyproject.toml constraints.txt $(wildcard src/spikehtr/kernels/native/*)

.venv/.core: .venv/bin/python $(NEEDED)
	$(PIP) install -c constraints.txt -e .
	@touch $@

.venv/.dev: .venv/bin/python $(NEEDED)
	$(PIP) install -c constraints.txt -e '.[dev,oracle,export,pdf]'
	@touch .venv/.core $@

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
