# The two that do everything on a fresh Debian machine: `make capsule` and `make test`.

PYTHON := .venv/bin/python
CAPSULE_BUILD := .venv/bin/capsule-build
LIBC ?= glibc
# Engines, images and inputs of the tests live here, outside the checkout, and are used again.
STATE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/capsule-build-tests

UNIT_TESTS = TMPDIR=$${TMPDIR:-$$(sh tools/scratch.sh)} $(PYTHON) -m pytest tests/unit -q -n auto
WITH_ENGINES = CAPSULE_REQUIRE_ENGINES=1 CAPSULE_TEST_STATE=$(STATE) $(PYTHON) -m pytest
USUAL = -m "not soak and not matrix" --durations=15
# Tests start Python thousands of times: what it compiled is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: ## Make .venv with what builds and the sandbox need
	@sh tools/setup.sh

.PHONY: setup-dev
setup-dev:
	@sh tools/setup.sh --dev

.PHONY: setup-tests
setup-tests:
	@sh tools/setup.sh --tests
	@sh tools/engines.sh setup --tests

.PHONY: capsule
capsule: setup ## Set up what is missing, build a node24 capsule (LIBC=musl for the other), run it
	@sh tools/engines.sh setup
	@sh tools/first-capsule.sh $(LIBC)

.PHONY: check
check: setup-dev ## Lint, types and unit tests, with fewer examples: under a minute
	$(PYTHON) -m ruff check --quiet .
	$(PYTHON) -m ruff format --check --quiet .
	$(PYTHON) -m mypy
	$(PYTHON) tools/lint_workflows.py
	$(UNIT_TESTS) -m "not slow" --hypothesis-profile=quick

.PHONY: test
test: setup-tests ## Set up what is missing, run all tests, with real engines
	$(PYTHON) -m ruff check --quiet .
	$(PYTHON) -m ruff format --check --quiet .
	$(PYTHON) -m mypy
	$(PYTHON) tools/lint_workflows.py
	@sh tools/side-by-side.sh '$(UNIT_TESTS) && $(WITH_ENGINES) tests/native tests/sandbox $(USUAL)' '$(WITH_ENGINES) tests/integration $(USUAL)'

.PHONY: soak
soak: setup-tests ## What is too long for make test: more rounds of it
	CAPSULE_SOAK=1 $(WITH_ENGINES) tests -m soak

.PHONY: matrix
matrix: setup-tests ## Every cell of the real agents' matrix; writes its table into docs/
	$(WITH_ENGINES) tests -m matrix

.PHONY: fuzz
fuzz: setup-tests ## The fuzzers of the native tools, for FUZZ_SECONDS (600) each
	CAPSULE_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),600) $(PYTHON) -m pytest tests/native -k fuzz

.PHONY: bench
bench: setup-tests ## Measure, side by side with what a user would do instead
	$(PYTHON) -m benchmarks

.PHONY: lock
lock: setup ## Build what is missing (RECIPES=node24 for some) and regenerate registry.lock.json
	$(CAPSULE_BUILD) release $(or $(RECIPES),--all) --no-sign
	$(CAPSULE_BUILD) lock
