# Everything runs in .venv, in two steps: what callfuse needs to run, and the rest of what its tests need. Each is
# installed when it is first needed, and again when its sources change.
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
RUNS := .venv/ready-to-run
READY := .venv/ready
PIP = $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
PYTEST = $(BIN)/python -m pytest --numprocesses auto --dist worksteal
PROGRAMS = $(subst /,.,$(basename $(shell grep -l '^if __name__ == "__main__"' benchmarks/*.py)))
# Compiled modules are kept: hundreds of tests start a process that imports callfuse.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve quick test hosts lowest lint type bench fuzz site clean

help: ## Show these lines
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(READY) ## Make .venv with all that is needed; the other targets do it by themselves

demo: $(RUNS) ## Watch a loop being caught, all on this machine, no key (ARGS=--page: in pictures too)
	@$(BIN)/callfuse demo $(ARGS)

serve: $(RUNS) ## Guard a vendor: make serve UPSTREAM=https://api.openai.com (ARGS=... for more options)
	$(BIN)/callfuse serve $(if $(UPSTREAM),--upstream '$(UPSTREAM)') $(ARGS)

quick: $(READY) ## Run the fast tests, with few examples each; a minute or two on two cores
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m 'not slow and not search' $(ARGS)

test: lint type ## Check everything: lint, types, and every test; fifteen minutes on two cores
	$(PYTEST) $(ARGS)

hosts: $(READY) ## Run the tests in real hosts, frameworks and agents, which are downloaded (2.5 GB) and kept
	CALLFUSE_HOSTS=1 $(BIN)/python -m pytest --timeout 1800 tests/hosts tests/deploy tests/docs/test_in_fastapi.py tests/cli/test_run_agents.py $(ARGS)

lowest: $(READY) ## Run what needs no SDK on the lowest versions of all packages, which are downloaded and kept
	CALLFUSE_HOSTS=1 $(BIN)/python -m pytest --timeout 1800 tests/hosts/test_versions.py -k lowest $(ARGS)

lint: $(READY) ## Check style, formatting, spelling and wording
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell
	$(BIN)/python -m pytest --quiet tests/project/test_words.py

type: $(READY) ## Check types
	$(BIN)/mypy

bench: $(READY) ## Run every program of benchmarks/; some minutes, on a quiet machine
	@for program in $(PROGRAMS); do printf "\n%s\n" $$program && $(BIN)/python -m $$program || exit 1; done

fuzz: $(READY) ## Search every property for long, then damaged bodies; 4 to 5 hours of CPU (SHARD=3/4: a part of the first)
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m 'hypothesis or search' --timeout 3600 $(if $(SHARD),--shard $(SHARD)) $(ARGS)
	$(if $(SHARD),,$(BIN)/python -m tests.fuzz --seed "$$(date +%s)" --count 500000)

site: $(READY) ## Build the documentation as pages, in build/site; a broken link is an error
	$(BIN)/zensical build --clean --strict

clean: ## Remove everything that was made, .venv included
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist; find . -name __pycache__ -prune -exec rm -rf {} +

$(RUNS): pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error callfuse needs Python 3.11 or newer; name one with make PYTHON=...))
	@echo 'Installing callfuse with what its demo needs into .venv, about 120 MB, once.'
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[demo]'
	@touch $@

$(READY): $(RUNS)
	@echo 'Installing what the tests need into .venv, about 460 MB more, once.'
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --group dev
	@touch $@
