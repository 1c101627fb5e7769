# Run `make check` while you work. Everything runs in .venv, which is created from the lock files on demand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=
LOCK := uv pip compile --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# If this variable is set, every test process recompiles all files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check static quick test measured unmeasured test-real bench docs picture format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.runtime ## see it work: a throwaway repository, one event, the decisions, and the diff
	@$(BIN)/image-update demo $(ARGS)

# With two jobs, no processor is idle while mypy runs or while tests wait.
TOGETHER = --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=line)

check: .venv/.dev ## format, lint, types, layers, code metrics, and quick tests in about a minute
	@rm -f .cache/static
	@$(MAKE) $(TOGETHER) static quick || \
	 { test -e .cache/static || echo "A static check failed, see above. To run only these: make static" >&2; exit 1; }

static:
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/yamllint --strict .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.house
	@mkdir -p .cache && touch .cache/static

quick:
	$(BIN)/python -m pytest --numprocesses auto --quiet -m "not slow and not hypothesis and not servers and not real" $(ARGS)

# Measuring coverage triples the CPU time, so slow tests are only measured if they are marked as `measured`, and tests of
# texts never. Slow tests often wait for something. Meanwhile, the measured tests use the processors.
test: .venv/.dev .cache/rewritten ## run all tests with coverage (with CI=true, a missing component is a failure)
	@$(MAKE) $(TOGETHER) measured unmeasured

# pytest rewrites the assertions of a test file when it first reads the file. In a fresh clone, each worker would rewrite
# all files, which takes longer than this.
.cache/rewritten: $(shell find tests -name '*.py') | .venv/.dev
	@mkdir -p .cache
	@$(BIN)/python -m pytest --numprocesses 0 --collect-only -qq tests/[a-g]*/ > /dev/null & \
	 $(BIN)/python -m pytest --numprocesses 0 --collect-only -qq tests/[h-z]* > /dev/null; wait
	@touch $@

measured:
	@mkdir -p .cache/coverage
	$(BIN)/coverage erase
	nice -n 3 $(BIN)/coverage run -m pytest --numprocesses auto -m "not real and (measured or not (texts or slow or servers))" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

unmeasured:
	$(BIN)/python -m pytest --numprocesses auto -m "not real and not measured and (texts or slow or servers)" $(ARGS)

test-real: .venv/.dev ## run tests with real servers and CI runners (Kubernetes, Gitea, act, ...), which are built once
	tests/real/install
	$(BIN)/python -m pytest -m real tests/real $(ARGS)

bench: .venv/.dev ## run the benchmarks, both sides in one run (ARGS="--only small-run")
	$(BIN)/python -m bench $(ARGS)

docs: .venv/.dev ## build the site in .cache/site and fail on broken links (ARGS=serve to preview it)
	$(BIN)/python -m zensical $(or $(ARGS),build --strict)

picture: .venv/.dev ## regenerate the pictures in docs/ from real runs (requires chromium)
	$(BIN)/python -m scripts.picture
	$(BIN)/python -m scripts.screenshots

format: .venv/.dev ## format the code and fix lint errors where possible
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

lock: ## update the lock files (requires uv; add ARGS=--upgrade for newer versions)
	$(LOCK) pyproject.toml --extra sigstore --output-file requirements.lock $(ARGS)
	$(LOCK) --group build --output-file requirements-build.lock $(ARGS)
	$(LOCK) pyproject.toml --extra sigstore --group dev --output-file requirements-dev.lock $(ARGS)

clean: ## remove .venv and all generated files
	rm -rf .venv .cache .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find task tests bench -name __pycache__ -type d -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Only the dependencies of a run.
.venv/.runtime: requirements.lock requirements-build.lock pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements.lock -r requirements-build.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: requirements-dev.lock pyproject.toml | .venv/bin/python
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch .venv/.runtime $@
