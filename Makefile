# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RELEASE := .venv-release

.PHONY: help demo test test-integrations test-engines test-dist dist audit docs check format clean

help:
	@echo "make demo    see it work: real documents, real retrieval, a real engine (ARGS='--limit 20 ...' for options)"
	@echo "make test    run all tests"
	@echo "make test-integrations  test the LlamaIndex, LangChain and Mem0 packages, with the newest and the oldest frameworks"
	@echo "make test-engines  test with a real engine: vLLM on the CPU, with a small model made here (Linux on x86_64)"
	@echo "make docs    the documentation site, in site/"
	@echo "make dist    build what is published, in dist/, and look into it"
	@echo "make test-dist  install what was built into clean environments, the oldest and the newest supported, and use it"
	@echo "make audit   look the tested versions up among known vulnerabilities"
	@echo "make check   linters, type checker, file sizes"
	@echo "make format  format the code"

demo: $(VENV)/.ready-demo
	@$(BIN)/contextpilot-rag demo $(ARGS)

test: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report= $(ARGS)
	@$(BIN)/python -m coverage report --skip-covered --fail-under=90
	@$(BIN)/python -m coverage report --fail-under=95 --include='contextpilot_rag/index/*,contextpilot_rag/prompt/*,contextpilot_rag/identity.py'

test-integrations:
	@PYTHON="$(PYTHON)" sh scripts/integrations.sh newest $(ARGS)
	@PYTHON="$(PYTHON)" sh scripts/integrations.sh oldest $(ARGS)

test-engines:
	@PYTHON="$(PYTHON)" sh scripts/engines.sh $(ARGS)

docs: $(VENV)/.ready-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation: site/index.html"

dist: $(RELEASE)/.ready
	@$(RELEASE)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(RELEASE)/bin/python -m scripts.release_build

test-dist: dist
	@$(RELEASE)/bin/python -m scripts.release_install $(ARGS)

audit: $(RELEASE)/.ready
	@$(RELEASE)/bin/python -m scripts.release_audit

check: $(VENV)/.ready-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python scripts/file_sizes.py

format: $(VENV)/.ready-dev
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

$(VENV)/.ready-%: pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh "$(VENV)" $*
	@touch $@

$(RELEASE)/.ready: pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(RELEASE) release
	@touch $@

clean:
	rm -rf $(VENV) $(RELEASE) .venv-newest .venv-oldest .venv-engines .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist site
