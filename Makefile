# `make demo` and `make test` each set up everything they need in .venv, from a bare Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Constraints hold for build environments too, so that nothing can pull another torch.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

MINUTES ?= 10
SELECTED ?= not slow
# One more than there are cores: many tests wait for processes that they start.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
GATED := */aviot/ot/*,*/aviot/methods/*

.PHONY: demo test test-all lint unit processors docs fuzz lmms-eval test-lmms-eval vllm test-vllm lock clean

demo: .venv/ready
	$(BIN)/aviot demo

# What every change must pass. `test-all` adds the tests marked slow, and measures the coverage of all modules.
test: .venv/ready .venv/processors/ready
	$(MAKE) --jobs 2 --output-sync=target lint docs processors
	$(MAKE) unit

test-all: .venv/ready .venv/processors/ready
	$(MAKE) --jobs 2 --output-sync=target lint docs processors
	COVER=all $(MAKE) unit SELECTED=

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m '$(SELECTED)' --cov --cov-report= -q
	$(BIN)/coverage report $(if $(COVER),,--include='$(GATED)')
	$(BIN)/coverage report --include='$(GATED)' --fail-under=95 --format=total

# Comparisons with the families' own processors. What those need lies apart, since the package must not need it.
processors: .venv/processors/ready
	OMP_NUM_THREADS=1 PYTHONPATH=.venv/processors $(BIN)/pytest -q tests/processors

.venv/processors/ready: .venv/ready requirements-processors.txt
	$(BIN)/pip install --quiet --no-deps --require-hashes --upgrade --target .venv/processors --requirement requirements-processors.txt
	touch $@

# Ten minutes of all fuzzers with a fresh seed; make fuzz MINUTES=1 SEED=7. docs/fuzzing.md
fuzz: .venv/ready
	$(BIN)/python tests/fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# The documentation site, into site/; a broken link, a missing page or an unknown name is an error.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# lmms-eval wants an older PyAV. It imports without torchvision and timm, and PyPI's torchvision breaks beside a CPU's torch.
lmms-eval: .venv-lmms-eval/ready

test-lmms-eval: .venv-lmms-eval/ready .venv/ready
	OMP_NUM_THREADS=1 AVIOT_SERVER_PYTHON=$(abspath $(BIN))/python .venv-lmms-eval/bin/python -m pytest -q tests/lmms

.venv-lmms-eval/ready: export PIP_CONSTRAINT := $(CURDIR)/constraints-lmms-eval.txt
.venv-lmms-eval/ready: pyproject.toml constraints-lmms-eval.txt
	$(PYTHON) -m venv .venv-lmms-eval
	.venv-lmms-eval/bin/pip install --quiet --editable '.[lmms-eval]' hypothesis pytest
	.venv-lmms-eval/bin/pip uninstall --quiet --yes timm torchvision
	touch $@

# vLLM's CPU build wants an older transformers, and torchvision and torchaudio, which it does without: pip's own choice
# of dependencies is left out, and the constraints name every package.
vllm: .venv-vllm/ready

test-vllm: .venv-vllm/ready
	OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind HF_HUB_OFFLINE=1 \
		.venv-vllm/bin/python -m pytest -q tests/on_vllm

.venv-vllm/ready: export PIP_CONSTRAINT := $(CURDIR)/constraints-vllm.txt
.venv-vllm/ready: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --no-deps --requirement constraints-vllm.txt
	.venv-vllm/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Every file is checked against its hash but torch's, whose build differs by machine (CPU or CUDA) and is only pinned,
# and what such a build needs beside. HASHES=no takes the constraints alone, on systems that the hashes do not cover.
HASHES ?= yes
.venv/ready: pyproject.toml constraints.txt requirements-build.txt requirements-ci.txt
	@echo "Setting up .venv: a minute or two, most of it torch."
	$(PYTHON) -m venv .venv
ifeq ($(HASHES),yes)
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements-build.txt
	$(BIN)/pip install --quiet --no-deps --require-hashes --no-build-isolation --requirement requirements-ci.txt
	$(BIN)/pip install --quiet torch
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/pip check
else
	$(BIN)/pip install --quiet --editable '.[dev]'
endif
	touch $@

# Writes requirements-build.txt and requirements-ci.txt anew from constraints.txt; needs the package index.
lock:
	$(PYTHON) .ci/lock.py

clean:
	rm -rf .venv .venv-lmms-eval .venv-vllm .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
