# Each command sets up what it needs by itself: a virtual environment in .venv, every version pinned.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CHECK  := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
AXE    := 4.14.0
# Where tests for a GPU are: other files import what a machine with one need not have.
GPU    := tests/bench tests/nn tests/ops tests/text tests/train tests/inference/test_folder.py tests/inference/test_tracing_gpu.py \
          tests/faults/test_04_training_not_finite.py
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start Python a hundred times: it must not compile the sources each time, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo kernel test coverage test-slow test-sanitizers test-gpu check format bench bench-gpu page tables docs clean

help:           ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

demo: $(VENV)/.runtime   ## train NSE and two baselines on the built-in corpus, about two minutes
	$(BIN)/nse demo

kernel: | $(VENV)/bin/python   ## compile the CPU kernel, unless it was since its source changed
	@$(BIN)/python hatch_build.py

test: $(VENV)/.browser   ## all tests that fit in a few minutes, and beside them lint, types, import contracts
	@{ $(CHECK); } >$(VENV)/check.log 2>&1 & check=$$!; \
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu"; tests=$$?; \
	wait $$check; check=$$?; cat $(VENV)/check.log; [ $$tests$$check = 00 ]

coverage: check $(VENV)/.browser   ## the same tests, and which lines they reach, which takes a quarter longer
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu" --cov --cov-report=term:skip-covered

test-slow: $(VENV)/.test   ## the tests that train for minutes
	$(BIN)/python -m pytest -m slow --timeout 1800

test-sanitizers: $(VENV)/.test   ## the CPU kernel with its memory, arithmetic and threads watched, five minutes
	$(BIN)/python tests/ops/sanitize_kernel.py

test-gpu:       ## parity on a CUDA device, with the Python that has one (PYTHON=...)
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -p no:cacheprovider $(GPU)

check: $(VENV)/.test   ## ruff, mypy, import-linter
	$(CHECK)

format: $(VENV)/.test   ## let ruff put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.runtime   ## time the backends and their peers side by side on this machine, in a quarter of an hour
	$(BIN)/python benchmarks/speed --device cpu --out benchmarks/results/cpu.json

bench-gpu:      ## time them on a CUDA device, with the Python that has one (PYTHON=...)
	PYTHONPATH=src $(PYTHON) benchmarks/speed --device cuda --out benchmarks/results/h200.json

page: $(VENV)/.browser   ## measure the page in a browser, and take its pictures for the documents
	$(BIN)/python benchmarks/page.py

tables: $(VENV)/.test   ## write the documents' tables and pictures from the measured figures
	$(BIN)/python benchmarks/tables.py

docs: $(VENV)/.docs   ## build the documentation into site/
	$(BIN)/zensical build --clean

clean:          ## remove what the other commands made
	rm -rf $(VENV) src/nse/ops/cpu/libnse_cpu.* site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | kernel
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | kernel
	$(PIP) -e ".[test]"
	touch $@ $(VENV)/.runtime

# What tests of the page and of LaTeX need beside Python; where it cannot be had, those tests are skipped.
$(VENV)/.browser: $(VENV)/.test
	@{ command -v chromium && command -v pdflatex; } >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium texlive-latex-recommended; } \
	  >/dev/null 2>&1 || echo "no chromium or no pdflatex: some tests will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(VENV) axe-core@$(AXE) >/dev/null 2>&1 || \
	  echo "no axe-core: some tests will be skipped"
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[docs]"
	touch $@ $(VENV)/.runtime
