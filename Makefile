# `make demo` and `make test` start from nothing: each sets up .venv from pyproject.toml first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
PARITY := $(VENV)/.parity-installed
BENCHMARKS := cost_throughput simulator tuning_quality

.PHONY: demo test parity lint doctest bench format clean
.NOTPARALLEL: # both stamps install into one environment

demo: $(RUNTIME)
	$(BIN)/pyptox tune matmul --m 16 --k 5120 --n 17408 --dtype bf16

test: $(DEV)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

parity: $(PARITY)
	$(BIN)/python -m pytest -m parity tests/models

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

doctest: $(DEV)
	$(BIN)/python -m pytest --doctest-modules pyptox autotune models

bench: $(RUNTIME)
	@for name in $(BENCHMARKS); do echo "== benchmarks.$$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build_output dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml once its environment holds what pyproject.toml asks for.
$(RUNTIME): pyproject.toml | $(BIN)/pip
	@echo "Installing pyptox into $(VENV) (a minute or two the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/pip
	@echo "Installing pyptox and its development tools into $(VENV) (a minute or two the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(RUNTIME) $@

$(PARITY): pyproject.toml | $(DEV)
	@echo "Installing torch and transformers into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[parity]'
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "pyptox needs Python 3.11 or newer, but \`$(PYTHON)\` is missing or older." \
	       "Install one (Debian: apt install python3 python3-venv) or name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "\`$(PYTHON) -m venv\` is not available. Install the package python3-venv" \
	       "(Debian: apt install python3-venv), then run make again." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
