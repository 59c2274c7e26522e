# `make demo` and `make test` each set up everything they need in .venv, from a bare Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Constraints hold for build environments too, so that nothing can pull another torch.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: demo test lint unit lmms-eval test-lmms-eval clean

demo: .venv/ready
	$(BIN)/aviot demo

test: lint unit

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal --cov --cov-report=term -q
	$(BIN)/coverage report --include='*/aviot/ot/*,*/aviot/compressor/*' --fail-under=95 --format=total

# lmms-eval wants an older PyAV. It imports without torchvision and timm, and PyPI's torchvision breaks beside a CPU's torch.
lmms-eval: .venv-lmms-eval/ready

test-lmms-eval: .venv-lmms-eval/ready
	OMP_NUM_THREADS=1 .venv-lmms-eval/bin/python -m pytest -q tests/lmms

.venv-lmms-eval/ready: export PIP_CONSTRAINT := $(CURDIR)/constraints-lmms-eval.txt
.venv-lmms-eval/ready: pyproject.toml constraints-lmms-eval.txt
	$(PYTHON) -m venv .venv-lmms-eval
	.venv-lmms-eval/bin/pip install --quiet --editable '.[lmms-eval]' hypothesis pytest
	.venv-lmms-eval/bin/pip uninstall --quiet --yes timm torchvision
	touch $@

.venv/ready: pyproject.toml constraints.txt
	@echo "Setting up .venv: a minute or two, most of it torch."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-lmms-eval .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
