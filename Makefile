# While you work, run `make check`. Everything runs in .venv, which is created from the lock files when it is needed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
LOCK := uv pip compile --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# If this variable is set, every process of the tests compiles all files again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test test-real bench docs picture format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.runtime ## see it happen: a throw-away repository, one event, the decisions and the diff
	@$(BIN)/image-update demo $(ARGS)

check: .venv/.dev ## format, lint, types, layers, the shape of the house and the quick tests: under a minute
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/yamllint --strict .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.house
	$(BIN)/python -m pytest --numprocesses auto --quiet -m "not slow and not servers and not real" $(ARGS)

# Measuring coverage takes three times the processor time, so slow tests are measured only if they are marked so.
test: .venv/.dev ## every test, with coverage; CI=true turns a missing component into a failure
	@mkdir -p .cache/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses auto -m "not real and (measured or not (slow or servers))" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/python -m pytest --numprocesses auto -m "not real and not measured and (slow or servers)" $(ARGS)

test-real: .venv/.dev ## tests with real servers and CI runners (Kubernetes, Gitea, act, ...); builds them first, once
	tests/real/install
	$(BIN)/python -m pytest -m real tests/real $(ARGS)

bench: .venv/.dev ## measure the figures, both sides in one run (ARGS="--only small-run")
	$(BIN)/python -m bench $(ARGS)

docs: .venv/.dev ## build the site into .cache/site; a broken link fails (ARGS=serve to look at it)
	$(BIN)/python -m zensical $(or $(ARGS),build --strict)

picture: .venv/.dev ## make the pictures of docs/ anew, from real runs (needs chromium)
	$(BIN)/python -m scripts.picture
	$(BIN)/python -m scripts.screenshots

format: .venv/.dev ## format the code and mend what can be mended
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

lock: ## renew the lock files (needs uv; add ARGS=--upgrade for newer versions)
	$(LOCK) pyproject.toml --extra sigstore --output-file requirements.lock $(ARGS)
	$(LOCK) --group build --output-file requirements-build.lock $(ARGS)
	$(LOCK) pyproject.toml --extra sigstore --group dev --output-file requirements-dev.lock $(ARGS)

clean: ## remove .venv and everything else that was made
	rm -rf .venv .cache .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find task tests bench -name __pycache__ -type d -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Only what a run needs.
.venv/.runtime: requirements.lock requirements-build.lock pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: requirements-dev.lock pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch .venv/.runtime $@
