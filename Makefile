# Everything a contributor needs; a fresh clone needs Python >= 3.11, pip and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-slow test-ray soak check format bench clean
.DEFAULT_GOAL := demo

# torch first and pinned: an unpinned torch is several GB of CUDA libraries
$(VENV)/.base: constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch==2.13.0
	$(PIP) install -q -c constraints.txt -e '.[train]'
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.ray: $(VENV)/.dev
	$(PIP) install -q -c constraints.txt -e '.[ray]'
	touch $@

demo: $(VENV)/.base          ## train five objectives at lag 1 and 8, print the table and the path of the report
	$(BIN)/lagproof compare demo

test: $(VENV)/.dev           ## the whole suite but the slow tests
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.dev      ## the slow tests too
	$(BIN)/python -m pytest -n 2 -m 'slow or not slow'

test-ray: $(VENV)/.ray       ## real processes under Ray: faults, resumes, a few random kills; one at a time
	$(BIN)/python -m pytest -m ray tests/ray

soak: $(VENV)/.ray           ## 200 runs with random kills of workers, learners and drivers
	$(BIN)/python tests/ray/soak.py --schedules 200

check: $(VENV)/.dev          ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev         ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev          ## the benchmarks, as ratios in one run
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .hypothesis .ruff_cache
