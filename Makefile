# Each target does the set-up it needs: on a fresh clone `make test` alone is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTENV := .testenv/bin
KUBECTL := $(TESTENV)/kubectl
TESTS ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup testenv test crash-sweep test-vcsim check format manifests verify install uninstall run manager demo bench bench-vcenter bench-vmgroup lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## Make the virtual environment: pinned and hashed dependencies, both packages editable

$(VENV)/ready: requirements/dev.txt pyproject.toml packages/kubewright/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "setting up $(VENV): about a minute the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packages/kubewright -e .
	@touch $@

testenv: $(VENV)/ready ## Find or build etcd, kube-apiserver, kubectl and vcsim into .testenv/bin (the first build takes minutes)
	@$(BIN)/python -m kubewright.testing.assets --into $(TESTENV)
	@$(BIN)/python -m kubewright.testing.module testenv/vcsim --into $(TESTENV)

test: testenv ## Run all tests, those on the real API server too; one of them: make test TESTS=path
	$(BIN)/python -m pytest $(TESTS) $(ARGS)

crash-sweep: testenv ## Kill the manager at every call of a VmGroup's life, in three ways each; about half an hour
	cd tests && PYTHONPATH=../testenv ../$(BIN)/python -m real.crashsweep $(ARGS)

test-vcsim: ## Vet and test the simulated vCenter itself; needs go
	cd testenv/vcsim && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...

check: setup ## Check format, lint, import contracts and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: setup ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

manifests: setup ## Generate config/crd and config/rbac from the types and controllers
	$(BIN)/kubewright manifests

verify: setup ## Fail when a generated file is stale
	$(BIN)/kubewright manifests --check

install: testenv ## Install the CRDs into the cluster of your current kubeconfig
	$(KUBECTL) apply -k config/crd

uninstall: testenv ## Remove the CRDs, and with them all their objects, from the cluster
	$(KUBECTL) delete --ignore-not-found -k config/crd

run: setup ## Run the manager here against your current kubeconfig; flags: make run ARGS="--zap-devel"
	$(BIN)/manager $(ARGS)

manager: setup ## Install the manager command; it is then .venv/bin/manager
	@$(BIN)/manager -help > /dev/null && echo "$(BIN)/manager is ready"

demo: testenv ## See all kinds at work, without a cluster and a vCenter of your own; ONCE=1 prints the answers and ends
	@$(BIN)/python -m demo $(if $(ONCE),--once)

bench: testenv ## Measure the runtime beside a bare loop and kopf; one size: make bench ARGS="-n 1000"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench $(ARGS)

bench-vcenter: testenv ## Measure the vCenter side on a large simulated one: loading beside pyVmomi, then changes, churn and memory
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.vcenter_load
	$(BIN)/python -m bench.vcenter_scale $(ARGS)

bench-vmgroup: testenv ## Measure a VmGroup of 50 beside small ones: how near the ideal, and who waits
	$(BIN)/python -m bench.vmgroup_scale $(ARGS)

lock: ## Pin the dependencies anew after a change of requirements/*.in
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv
	for part in runtime dev bench; do \
	  (cd requirements && ../.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-header $$part.in -o $$part.txt) || exit 1; \
	done
	rm -rf .venv-lock

clean: ## Remove the virtual environment and what tests and builds left here (the cache of binaries stays)
	rm -rf $(VENV) .testenv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
