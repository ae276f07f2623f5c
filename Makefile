# `make demo` and `make test` do everything on a machine with Python 3.11+ (with venv) and make;
# both start with `make setup`, which does its work once. docs/howto/setup.md says more.

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

# The first Python that is new enough and can make environments.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv/bin

.PHONY: help setup demo test test-all bench fuzz simulate mutants package release bounds docs site notebook lint pins browser prometheus chart clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

setup:  ## environment in .venv, Kafka jars, all that later commands need; quick the second time
	@[ -n "$(PYTHON)" ] || { echo "error: no Python 3.11 or newer with venv and ensurepip found" \
		"as python3.13, python3.12, python3.11 or python3; install one (Debian: python3-venv)" \
		"or name it: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) scripts/setup.py

demo: setup  ## quotas set, enforced and accounted on a real Kafka, in about two minutes
	@$(VENV)/headgate demo $(DEMO_ARGS)

test: setup  ## all tests without a server, some of each kind with one; GROUP=rest for the others, GROUP=spark|… for one group
	@$(VENV)/python scripts/run_tests.py $(GROUP)

test-all: setup  ## all tests with full counts; writes date and result to bench/test-all.md
	@HYPOTHESIS_PROFILE=nightly $(VENV)/python scripts/run_tests.py --all $(GROUP)

bench: setup  ## measure; results go to bench/
	@$(VENV)/python scripts/run_each.py bench

fuzz: setup  ## feed parsers what nobody sent; FUZZ_SECONDS=20 for each target
	@$(VENV)/python scripts/run_each.py lab/fuzzing

mutants: setup  ## change the code that decides and see whether a test notices; SECONDS=3600, ROOM=throttle
	@$(VENV)/python scripts/mutants.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROOM),--room $(ROOM)) $(if $(SEED),--seed $(SEED))

simulate: setup  ## whole gateways in simulated lives under all laws; SEEDS=300, or SEED=17 for one; CONTROL=1: with stores
	@PYTHONPATH=tests:lab $(VENV)/python -m simulation.$(if $(CONTROL),control.)run $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),300)) $(SIMULATE_ARGS)

package: setup  ## wheel and sdist in dist/, built twice, checked; every command run with each extra
	@$(VENV)/python scripts/package.py

release: setup  ## all that a release needs except uploading; DRY=1 says what is in the way
	@$(VENV)/python scripts/release.py $(if $(DRY),--dry)

bounds: setup  ## unit tests with both ends of the declared versions, and on other Pythons; END=lowest for one; SPARK=3.5 (or all): the pipeline with that Spark
	@$(VENV)/python scripts/bounds.py $(END) $(if $(SPARK),--spark $(SPARK))

docs: setup  ## write the pages that are made from tables of the source; then look at the difference
	@PYTHONPATH=tests $(VENV)/python -m kit.settings_page docs/reference/settings.md
	@PYTHONPATH=tests $(VENV)/python -m kit.metrics_page docs/reference/metrics.md
	@PYTHONPATH=tests $(VENV)/python -m kit.http_page docs/reference/http.md
	@HEADGATE_GOLDEN=write $(VENV)/pytest tests/docs/test_commands_page.py

site: setup  ## build the documentation site in build/site; warnings and dead links are errors
	@$(VENV)/python scripts/doc_site.py

notebook: setup  ## run the notebook of examples/; its pictures go to build/notebooks/
	@$(VENV)/python scripts/notebook.py

lint: setup  ## style, format, strict types, import rules, spelling
	@$(VENV)/python scripts/lint.py

browser: setup  ## a Chromium for tests in a browser, installed when there is none
	@$(VENV)/python scripts/chromium.py

prometheus: setup  ## Prometheus and promtool for the tests of alerts, unpacked when there are none
	@$(VENV)/python scripts/prometheus.py

chart: setup  ## render the Helm chart: deploy/install.yaml and the goldens (needs Go)
	@$(VENV)/python scripts/deploy_tools.py

pins: setup  ## resolve all requirements and jars anew and pin them with hashes
	@$(VENV)/python scripts/pins.py

clean:  ## remove the environment and everything fetched or built
	rm -rf .venv .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
