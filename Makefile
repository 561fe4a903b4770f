# Each target does the set-up it needs: on a fresh clone `make test` alone is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTENV := .testenv/bin
KUBECTL ?= $(or $(shell command -v kubectl 2> /dev/null),$(TESTENV)/kubectl)
# That of the test environment is made first, if it is the one to use; yours is there.
KUBECTL_MADE = $(filter $(TESTENV)/kubectl,$(KUBECTL))
KUBEWRIGHT := $(BIN)/python -m kubewright
CONTAINER_TOOL ?= docker
IMG ?= controller:latest
VERSION = $(shell awk -F '"' '/^version = /{print $$2; exit}' pyproject.toml)
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || echo unknown)
BASE_DIGEST ?=
KIND ?= kind
KIND_CLUSTER ?= custom-operator-cluster
AGAINST ?= HEAD
TESTS ?=
# Test files at the same time; each process has a control plane of its own, and most of a test's time is waiting.
JOBS ?= $(if $(TESTS),0,2)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup testenv binaries simulator test crash-sweep gpu-walk rotation test-vcsim check format manifests docs site golden verify cluster install uninstall run manager demo live-view-picture docker-build docker-push \
  deploy undeploy build-installer helm sbom kind-up kind-load kind-down bench bench-vcenter bench-vmgroup lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## Make the virtual environment: pinned and hashed dependencies, both packages editable

$(VENV)/ready: requirements/dev.txt pyproject.toml packages/kubewright/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "setting up $(VENV): about a minute the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e packages/kubewright -e .
	@touch $@

testenv: simulator ## Find or build etcd, kube-apiserver, kubectl, vcsim and helmtemplate into .testenv/bin (the first build takes minutes)
	@$(BIN)/python -m kubewright.testing.go_module testenv/helmtemplate --into $(TESTENV)

binaries: $(VENV)/ready ## Find or build etcd, kube-apiserver and kubectl alone
	@$(BIN)/python -m kubewright.testing.binaries --into $(TESTENV)

$(TESTENV)/kubectl: | $(VENV)/ready
	@$(BIN)/python -m kubewright.testing.binaries --only kubectl --into $(TESTENV)

simulator: binaries ## The same, and vcsim, the simulated vCenter
	@$(BIN)/python -m kubewright.testing.go_module testenv/vcsim --into $(TESTENV)

test: testenv ## Run all tests, those on the real API server too, two files at a time; one of them: make test TESTS=path
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

crash-sweep: testenv ## Kill the manager at every call of a VmGroup's life, in three ways each; the better part of an hour
	cd tests && PYTHONPATH=../testenv ../$(BIN)/python -m real.crash_sweep $(ARGS)

gpu-walk: testenv ## Change a cluster on the real parts 500 times, and compare GPUInfo's answers with brute force each time; takes minutes
	cd tests && PYTHONPATH=../testenv:. ../$(BIN)/python -m real.gpuinfo_random_walk $(ARGS)

rotation: testenv ## Let a webhook's own CA live for 60 s, and rotate it three times under a stream of creates; takes 3 minutes
	KUBEWRIGHT_CA_SECONDS=60 $(BIN)/python -m pytest packages/kubewright/tests/webhook/test_real_cert_rotation.py -k three_rotations -s $(ARGS)

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

manifests: setup ## Generate config/ from the types, the controllers and pyproject.toml
	$(KUBEWRIGHT) manifests

docs: setup ## Write docs/reference and docs/pictures from the code
	$(KUBEWRIGHT) docs --output docs/reference/api.md
	$(BIN)/python -m hack.docgen

site: setup ## Build the documentation as a site into dist/site, and fail for a link that leads nowhere
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -m hack.docgen.website dist/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

verify: setup ## Fail when a generated file is stale, or a CRD breaks what people have; since another commit: make verify AGAINST=main
	$(KUBEWRIGHT) manifests --check --against $(AGAINST)
	$(KUBEWRIGHT) docs --check --output docs/reference/api.md
	$(BIN)/python hack/image/sbom.py --check
	$(BIN)/python -m hack.docgen --check

golden: setup ## Write the golden projects of tests/golden anew: what the builder makes
	$(BIN)/python tests/support/golden_projects.py > /dev/null

# Without a kubeconfig kubectl asks localhost:8080, and says only that nobody answers there. No kubectl is asked: it may have to be built first.
cluster: ## Say in words if no cluster is configured; install, uninstall and deploy begin with it
	@test -n "$$KUBERNETES_SERVICE_HOST" || \
	  (IFS=:; grep -Eqs "current-context[\"']?: *[\"']?[^\"' ]" $${KUBECONFIG:-$$HOME/.kube/config}) || \
	  { echo "No Kubernetes cluster is configured: set KUBECONFIG to the file that names yours, or make a local one with: make kind-up" >&2; exit 1; }

install: cluster $(KUBECTL_MADE) ## Install the CRDs into the cluster of your current kubeconfig
	$(KUBECTL) apply -k config/crd

uninstall: cluster $(KUBECTL_MADE) ## Remove the CRDs, and with them all their objects, from the cluster
	$(KUBECTL) delete --ignore-not-found -k config/crd

run: setup ## Run the manager here against your current kubeconfig; flags: make run ARGS="--zap-devel"
	$(BIN)/manager $(ARGS)

manager: setup ## Install the manager command; it is then .venv/bin/manager
	@$(BIN)/manager -help > /dev/null && echo "$(BIN)/manager is ready"

demo: simulator ## See all kinds at work, without a cluster and a vCenter of your own; ONCE=1 prints the answers and ends
	@$(BIN)/python -m demo --with-parent $(if $(ONCE),--once)

live-view-picture: simulator ## Draw docs/pictures/live-view.svg, the picture in the README, from a real run of the demo
	@$(BIN)/python -m hack.live_view_picture

docker-build: ## Build the image: make docker-build IMG=example.com/vsphere-operators:v1; with podman: CONTAINER_TOOL=podman
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	  $(if $(BASE_DIGEST),--build-arg BASE_DIGEST=$(BASE_DIGEST) )-t $(IMG) .

docker-push: ## Push the image
	$(CONTAINER_TOOL) push $(IMG)

deploy: cluster $(VENV)/ready $(KUBECTL_MADE) ## Deploy to the cluster of your current kubeconfig: make deploy IMG=example.com/vsphere-operators:v1
	$(KUBEWRIGHT) build-installer --image $(IMG) --kubectl $(KUBECTL) --output - | $(KUBECTL) apply -f -

# CRDs first, while the manager still runs: only it takes finalizers off, and without it their objects would stay for ever.
undeploy: uninstall $(VENV)/ready ## Remove it all from the cluster, the CRDs and their objects too
	$(KUBEWRIGHT) build-installer --kubectl $(KUBECTL) --output - | $(KUBECTL) delete --ignore-not-found -f -

build-installer: $(VENV)/ready $(KUBECTL_MADE) ## Write dist/install.yaml: all that make deploy applies
	$(KUBEWRIGHT) build-installer --image $(IMG) --kubectl $(KUBECTL)

helm: setup ## Write a Helm chart to dist/chart
	$(KUBEWRIGHT) helm

sbom: ## Write hack/image/sbom.cdx.json: the image's packages with their hashes, from the lock
	$(PYTHON) hack/image/sbom.py

kind-up: ## Make a local cluster in containers: three nodes, as local-dev-cluster/kind-config.yml says
	@{ command -v $(KIND) && { command -v docker || command -v podman || command -v nerdctl; }; } > /dev/null || \
	  { echo "Install kind (https://kind.sigs.k8s.io), and docker or podman under it; make demo needs neither. A kind that is not on PATH: make kind-up KIND=path/to/kind" >&2; exit 1; }
	$(KIND) get clusters | grep -qx $(KIND_CLUSTER) || $(KIND) create cluster --name $(KIND_CLUSTER) --config local-dev-cluster/kind-config.yml

kind-load: ## Bring the image to its nodes: make docker-build kind-load deploy IMG=vsphere-operators:dev
	@case "$(notdir $(IMG))" in *:latest) ;; *:*) exit 0 ;; esac; \
	  echo "$(IMG) has the tag latest, so the nodes would ask a registry for it and not take what is loaded. Give it another: IMG=vsphere-operators:dev"; exit 1
	@mkdir -p dist
	$(CONTAINER_TOOL) save --output dist/image.tar $(IMG)
	$(KIND) load image-archive dist/image.tar --name $(KIND_CLUSTER)

kind-down: ## Remove the local cluster and all that is in it
	$(KIND) delete cluster --name $(KIND_CLUSTER)

bench: testenv ## Measure the runtime beside a bare loop, controller-runtime and kopf; one size: make bench ARGS="-n 1000"
	@$(BIN)/python -m kubewright.testing.go_module bench/contenders/controllerruntime --into $(TESTENV)
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
	for part in runtime build dev bench docs; do \
	  (cd requirements && ../.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-header $$part.in -o $$part.txt) || exit 1; \
	done
	rm -rf .venv-lock
	$(PYTHON) hack/image/sbom.py

clean: ## Remove the virtual environment and what tests and builds left here (the cache of binaries stays)
	rm -rf $(VENV) .testenv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
