# Each target sets up what it needs: on a fresh clone `make test` alone is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTENV := .testenv/bin
KUBECTL ?= $(or $(shell command -v kubectl 2> /dev/null),$(TESTENV)/kubectl)
# Without a kubectl on PATH, targets that use it first build that of the test environment.
KUBECTL_MADE = $(filter $(TESTENV)/kubectl,$(KUBECTL))
KUBEWRIGHT := $(BIN)/python -m kubewright
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CONTAINER_TOOL ?= docker
# Empty for the image that is deployed already; the image that is built is then controller:latest.
IMG ?=
IMAGE = $(or $(IMG),controller:latest)
# The kustomization to deploy; empty for that of the last time, at first config/default.
OVERLAY ?=
VERSION = $(shell awk -F '"' '/^version = /{print $$2; exit}' pyproject.toml)
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2> /dev/null || \
  echo unknown)
BASE_DIGEST ?=
PLATFORMS ?= linux/amd64,linux/arm64
COSIGN ?= cosign
HELM ?= helm
# As SemVer, which differs from the version in pyproject.toml for a pre-release.
CHART_VERSION = $(shell awk '/^version: /{print $$2; exit}' $(CHART)/Chart.yaml)
CHART_REPOSITORY ?=
IMAGE_REPOSITORY ?=
TAG ?=
KIND ?= kind
KIND_CLUSTER ?= custom-operator-cluster
AGAINST ?= HEAD
CHART := charts/vsphere-operators
TESTS ?=
# The minor version of Kubernetes for the tests; empty for the newest that is supported.
KUBERNETES ?= $(KUBEWRIGHT_KUBERNETES)
export KUBEWRIGHT_KUBERNETES := $(KUBERNETES)
# Test files at the same time. Each process has its own control plane and mostly waits.
JOBS ?= $(if $(TESTS),0,6)
ARGS ?=
# Tests run make, which must not see the variables of this run. Bytecode: tests start Python some
# hundred times, and collecting them costs each worker 15 s without it, 5 s with it. GOGC: programs
# in Go with small heaps, as kubectl, spend a fifth of their time on collecting garbage.
RUN_TESTS = env -u PYTHONDONTWRITEBYTECODE -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u ARGS -u JOBS \
  -u TESTS -u PYTHON -u VENV GOGC=$(or $(GOGC),400)
PYTEST = $(RUN_TESTS) $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo-setup testenv testenv-wheel testenv-archive binaries simulator test \
  test-unit test-long test-python first-minutes crash-sweep histories quota-histories gpu-random-test \
  node-moves rotation test-vcsim check format manifests docs site golden generate verify \
  lint-manifests linters cluster install uninstall run manager demo live-view-picture \
  page-pictures docker-build docker-push deploy undeploy build-installer helm sbom kind-up \
  kind-load kind-down dist publish image-release image-sign chart-release chart-sign release-check \
  images bench bench-cache bench-children bench-features bench-guard bench-maximum bench-page \
  bench-pages bench-peers bench-product bench-sharding bench-status bench-vcenter bench-vmgroup \
  walks lock shard-soak clean

##@ Set up

help: ## Show this list
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## Create .venv with pinned, hashed dependencies and our packages editable

# In two steps, because make demo needs only 29 of the 59 packages: 17 of 116 MB.
demo-setup: $(VENV)/demo-ready ## Create .venv with only what make demo needs

$(VENV)/demo-ready: requirements/demo.txt pyproject.toml packages/kubewright/pyproject.toml \
  packages/kubewright-api/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is required." \
	    "Select one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements/demo.txt
	$(PIP_INSTALL) --no-deps --no-build-isolation -e packages/kubewright \
	  -e packages/kubewright-api -e .
# As pip does for a wheel: generated modules are large, and must not be compiled at every import
# where Python writes no bytecode.
	$(BIN)/python -m compileall -q packages/kubewright-api/src
	@touch $@

$(VENV)/ready: $(VENV)/demo-ready requirements/dev.txt
	@echo "installing the tools of the tests and checks: about a minute the first time"
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

testenv: setup simulator ## Find, download or build all binaries of the tests into .testenv/bin
	@$(BIN)/python -m kubewright.testing.binaries --into $(TESTENV) \
	  --only kube-controller-manager,kube-scheduler
	@$(BIN)/python -m kubewright.testing.go_module testenv/helm --into $(TESTENV)
	@$(BIN)/python -m kubewright.testing.go_module testenv/kstatus --into $(TESTENV)
# Without service discovery, which is most of Prometheus: 2 minutes on 2 cores, once.
	@$(BIN)/python -m kubewright.testing.go_module testenv/prometheus --tags remove_all_sd \
	  --into $(TESTENV)
	@$(BIN)/python -m hack.install_chromium

testenv-wheel: testenv ## Pack .testenv/bin into dist as the wheel kubewright-testenv
	@$(BIN)/python -m kubewright.testing.testenv_wheel $(TESTENV) --output dist

testenv-archive: simulator ## Pack what make demo needs into dist/envtest, as a mirror serves it
	@$(BIN)/python -m kubewright.testing.testenv_archive $(TESTENV) --program vcsim \
	  --output dist/envtest

binaries: $(VENV)/demo-ready ## Find, download or build etcd, kube-apiserver and kubectl
	@$(BIN)/python -m kubewright.testing.binaries --into $(TESTENV)

$(TESTENV)/kubectl: | $(VENV)/demo-ready
	@$(BIN)/python -m kubewright.testing.binaries --only kubectl --into $(TESTENV)

simulator: binaries ## Find or build the binaries and vcsim, the simulated vCenter
	@$(BIN)/python -m kubewright.testing.go_module testenv/vcsim --into $(TESTENV)

##@ Test and check

test: testenv ## Run all tests; one file: TESTS=path; oldest Kubernetes: KUBERNETES=1.33
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder \
	  --durations=20 $(TESTS) $(ARGS)

test-unit: setup ## Run the tests that start no other program, without make testenv; 3 minutes
	$(PYTEST) -p hack.pytest_selection --without=programs -k "not real" -n 2 \
	  --dist loadfile --durations=20 $(TESTS) $(ARGS)

test-long: testenv ## Run in full what make test samples: generated cases, 200 VmGroups; minutes
	LONG_TESTS=1 $(PYTEST) tests/kinds/vmgroup/test_plan_state_machine.py \
	  tests/kinds/vmgroup/test_missing_histories.py \
	  tests/kinds/gpuinfo/test_generated_clusters.py tests/real/test_vmgroup_restart.py $(ARGS)

crash-sweep: testenv ## Kill the manager at every call of a VmGroup, in three ways; most of an hour
	cd tests && PYTHONPATH=../testenv ../$(BIN)/python -m real.crash_sweep $(ARGS)

shard-soak: testenv ## Kill, stop and scale replicas that share the objects, under load; hours
	cd tests && PYTHONPATH=../testenv ../$(BIN)/python -m real.shard_soak $(ARGS)

histories: setup ## Run 10,000 generated histories of VmGroups in two vCenters; most of an hour
	cd tests && PYTHONHASHSEED=0 ../$(BIN)/python -m kinds.vmgroup.histories $(ARGS)

quota-histories: setup ## Run 10,000 random histories of groups that share a quota; takes minutes
	cd tests && ../$(BIN)/python -m kinds.vmgroup.quota_histories $(ARGS)

gpu-random-test: testenv ## Compare GPUInfo with brute force over 500 changes; takes minutes
	cd tests && PYTHONPATH=../testenv:. ../$(BIN)/python -m real.gpuinfo_random_walk $(ARGS)

node-moves: testenv ## Follow 1,000 vMotions with Node labels, and kill the manager; 4 minutes
	cd tests && PYTHONPATH=../testenv:. ../$(BIN)/python -m real.node_moves $(ARGS)

rotation: testenv ## Rotate a webhook CA three times during a stream of creates; 3 minutes
	KUBEWRIGHT_CA_SECONDS=60 $(BIN)/python -m pytest -k three_rotations -s $(ARGS) \
	  packages/kubewright/tests/webhook/test_real_cert_rotation.py

# The version as a name of a folder, so that environments of several versions can exist.
test-python: testenv ## Run the tests that need no API server on another Python: PYTHON=python3.13
	$(MAKE) --no-print-directory setup VENV=.venv-$(notdir $(PYTHON))
	$(RUN_TESTS) .venv-$(notdir $(PYTHON))/bin/python -m pytest -p hack.pytest_selection \
	  --without=api-server -k "not real" -n $(JOBS) --dist loadfile $(TESTS) $(ARGS)

test-vcsim: ## Vet and test the simulated vCenter; needs Go
	cd testenv/vcsim && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...

check: setup ## Check format, lint, import contracts, types, language and private names
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m hack.check_words
	$(BIN)/python -m hack.check_private_names

linters: setup binaries ## Build and install the linters of make lint-manifests
	@$(BIN)/python -m kubewright.testing.go_module testenv/helm --into $(TESTENV)
	@$(BIN)/python -m kubewright.testing.go_module testenv/linters --into $(TESTENV)
	$(PIP_INSTALL) --require-hashes -r requirements/lint.txt

lint-manifests: linters ## Run kubeconform, kube-score, yamllint, hadolint, actionlint and zizmor
	$(BIN)/python -m hack.lint_manifests

format: setup ## Format the code and apply automatic lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

##@ Generate

manifests: setup ## Generate config/ from the types, the controllers and pyproject.toml
	$(KUBEWRIGHT) manifests
	$(BIN)/python -m hack.monitoring
	$(KUBEWRIGHT) helm --output $(CHART)

docs: setup ## Generate docs/reference from the code
	$(KUBEWRIGHT) docs --output docs/reference/api.md
	$(BIN)/python -m hack.docgen

site: setup ## Build the documentation site into dist/site; fail on a broken link
	$(PIP_INSTALL) --require-hashes -r requirements/docs.txt
	$(BIN)/python -m hack.docgen.website dist/docs
# The warning is about MkDocs 2, which the theme does not support; the theme requires mkdocs < 2.
# requirements/docs.in has the end of its maintenance and the successor.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

verify: setup ## Check generated files and that CRD changes break nothing; or AGAINST=main
	$(KUBEWRIGHT) manifests --check --against $(AGAINST)
	$(KUBEWRIGHT) helm --check --output $(CHART)
	$(KUBEWRIGHT) docs --check --output docs/reference/api.md
	$(BIN)/python hack/image/sbom.py --check
	$(BIN)/python -m hack.docgen --check
	$(BIN)/python -m hack.monitoring --check
	$(BIN)/python -m hack.generate_api --check

generate: setup binaries ## Generate kubewright-api and the kinds of FakeApi from the pinned API server
	$(BIN)/python -m hack.generate_api
	$(BIN)/python -m hack.fake_schemas
	$(BIN)/python -m compileall -q packages/kubewright-api/src

golden: setup ## Regenerate the golden projects in tests/golden
	$(BIN)/python tests/support/golden_projects.py > /dev/null

##@ Run

# Without a kubeconfig, kubectl connects to localhost:8080 and reports only "connection refused".
# This check does not use kubectl, which may have to be built first.
cluster: ## Fail with an explanation if no cluster is configured
	@test -n "$$KUBERNETES_SERVICE_HOST" || \
	  (IFS=:; grep -Eqs "current-context[\"']?: *[\"']?[^\"' ]" \
	    $${KUBECONFIG:-$$HOME/.kube/config}) || \
	  { echo "No Kubernetes cluster is configured: set KUBECONFIG," \
	    "or create a local cluster with: make kind-up" >&2; \
	    echo "Without containers, start an API server in another terminal, and paste what it" \
	    "prints: make setup && $(BIN)/kubewright test-env --controllers" >&2; exit 1; }

install: cluster $(KUBECTL_MADE) ## Install the CRDs into the cluster of your current kubeconfig
	$(KUBECTL) apply --server-side -k config/crd

uninstall: cluster $(VENV)/ready $(KUBECTL_MADE) ## Remove the CRDs and all their objects
	$(KUBEWRIGHT) uninstall --kubectl $(KUBECTL) $(ARGS)

run: setup ## Run the manager on this machine with your kubeconfig; flags: ARGS="--zap-devel"
	$(BIN)/manager $(ARGS)

manager: setup ## Install the manager command as .venv/bin/manager
	@$(BIN)/manager -help > /dev/null && echo "$(BIN)/manager is ready"

demo: simulator ## Show all kinds live, without a cluster or vCenter; ONCE=1 prints and exits
	@$(BIN)/python -m demo --with-parent $(if $(ONCE),--once)

live-view-picture: setup simulator ## Draw the animated docs/pictures/live-view.svg from a real run
	@$(BIN)/python -m hack.live_view_picture

page-pictures: setup ## Draw the pictures of the page in docs/pictures with Chromium
	@$(BIN)/python -m hack.install_chromium
	@$(BIN)/python -m hack.page_pictures

##@ Deploy

docker-build: ## Build the image: IMG=example.com/vsphere-operators:v1; CONTAINER_TOOL=podman
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	  $(if $(BASE_DIGEST),--build-arg BASE_DIGEST=$(BASE_DIGEST) )-t $(IMAGE) .

docker-push: ## Push the image
	$(CONTAINER_TOOL) push $(IMAGE)

deploy: cluster $(VENV)/ready $(KUBECTL_MADE) ## Deploy to the cluster of your kubeconfig: IMG=...
	$(KUBEWRIGHT) deploy $(IMG:%=--image %) --kubectl $(KUBECTL) \
	  $(OVERLAY:%=--overlay %) $(ARGS)

undeploy: cluster $(VENV)/ready $(KUBECTL_MADE) ## Remove everything, with the CRDs' objects
	$(KUBEWRIGHT) undeploy --kubectl $(KUBECTL) $(OVERLAY:%=--overlay %) $(ARGS)

build-installer: $(VENV)/ready $(KUBECTL_MADE) ## Write what make deploy applies: dist/install.yaml
	$(KUBEWRIGHT) build-installer $(IMG:%=--image %) --kubectl $(KUBECTL) \
	  $(OVERLAY:%=--overlay %)

helm: setup ## Generate the Helm chart in charts/vsphere-operators; make manifests does it, too
	$(KUBEWRIGHT) helm --output $(CHART)

sbom: ## Write hack/image/sbom.cdx.json, the image's packages with their hashes, from the lock
	$(PYTHON) hack/image/sbom.py

kind-up: ## Create a local cluster with three nodes from local-dev-cluster/kind-config.yml
	@{ command -v $(KIND) && \
	  { command -v docker || command -v podman || command -v nerdctl; }; } > /dev/null || \
	  { echo "Install kind (https://kind.sigs.k8s.io) and docker or podman;" \
	    "make demo needs neither." \
	    "If kind is not on PATH: make kind-up KIND=path/to/kind" >&2; exit 1; }
	$(KIND) get clusters | grep -qx $(KIND_CLUSTER) || \
	  $(KIND) create cluster --name $(KIND_CLUSTER) --config local-dev-cluster/kind-config.yml

kind-load: ## Load the image into the local cluster: IMG=vsphere-operators:dev
	@case "$(notdir $(IMAGE))" in *:latest) ;; *:*) exit 0 ;; esac; \
	  echo "$(IMAGE) has the tag latest, so the nodes would pull it from a registry and ignore" \
	    "the loaded image. Use another tag: IMG=vsphere-operators:dev"; exit 1
	@mkdir -p dist
	$(CONTAINER_TOOL) save --output dist/image.tar $(IMAGE)
	$(KIND) load image-archive dist/image.tar --name $(KIND_CLUSTER)

kind-down: ## Delete the local cluster
	$(KIND) delete cluster --name $(KIND_CLUSTER)

##@ Release

dist: setup ## Build, check and install the wheels and source distributions: dist/packages
	$(PIP_INSTALL) --require-hashes -r requirements/release.txt
	$(BIN)/python -m hack.dist dist/packages
	$(BIN)/python -m hack.check_sbom
	DIST_FOLDER=dist/packages $(BIN)/python -m pytest -q tests/test_dist.py

release-check: setup ## Compare a tag with the version and the changelog: TAG=v0.2.0
	@$(BIN)/python -m hack.release $(TAG)

publish: setup ## Sign the packages and upload them; only in the release workflow, without a token
	$(PIP_INSTALL) --require-hashes -r requirements/release.txt
	$(BIN)/python -m pypi_attestations sign dist/packages/*
	$(BIN)/python -m twine upload --non-interactive --attestations dist/packages/*

# The chart uses its appVersion as the tag of the image.
image-release image-sign: IMG = $(IMAGE_REPOSITORY):$(CHART_VERSION)

image-release: ## Build the image for PLATFORMS with SBOM, and push it: IMAGE_REPOSITORY=...
	@mkdir -p dist
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --sbom=true --provenance=mode=max \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	  --metadata-file dist/image.json --push -t $(IMAGE) .

# A tag can be moved; a signature belongs to a digest. A digest replaces the tag after the last colon.
image-sign: ## Sign the pushed image by its digest, without a key: IMAGE_REPOSITORY=...
	$(COSIGN) sign --yes "$(IMG)@$$(sed -n 's/.*"containerimage.digest": "\([^"]*\)".*/\1/p' \
	  dist/image.json)"

chart-release: setup ## Package the chart, and push it: CHART_REPOSITORY=example.com/charts
	$(HELM) package $(CHART) --destination dist
	$(HELM) push dist/vsphere-operators-$(CHART_VERSION).tgz oci://$(CHART_REPOSITORY) \
	  > dist/chart.txt 2>&1 || { cat dist/chart.txt; exit 1; }
	@cat dist/chart.txt

chart-sign: ## Sign the pushed chart by its digest, without a key: CHART_REPOSITORY=...
	$(COSIGN) sign --yes "$(CHART_REPOSITORY)/vsphere-operators@$$(sed -n 's/^Digest: //p' \
	  dist/chart.txt)"

images: setup binaries ## List the images that an installation pulls, for a mirror: IMG=...
	@$(BIN)/python -m kubewright.testing.go_module testenv/helm --into $(TESTENV)
	@$(BIN)/python -m hack.images --image $(IMAGE)

##@ Measure

bench: testenv ## Compare with a bare loop, controller-runtime and kopf; one size: ARGS="-n 1000"
	@$(BIN)/python -m kubewright.testing.go_module bench/contenders/controllerruntime --into $(TESTENV)
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench $(ARGS)

# Peers in Rust and Java are left out where cargo or mvn is missing. Their lock files would contain
# addresses of registries, so versions are exact in Cargo.toml and pom.xml.
bench-peers: testenv ## Build the operators in Go, Rust and Java that bench-product races against
	@$(BIN)/python -m kubewright.testing.go_module bench/contenders/infocontrollerruntime --into $(TESTENV)
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	@if command -v cargo > /dev/null; then \
	  cd bench/contenders/infokubers && cargo build --release && \
	  install target/release/infokubers $(CURDIR)/$(TESTENV); \
	else echo "cargo is not on PATH: kube-rs is left out"; fi
	@if command -v mvn > /dev/null; then \
	  cd bench/contenders/infojosdk && mvn --batch-mode --quiet package && \
	  install target/infojosdk.jar $(CURDIR)/$(TESTENV); \
	else echo "mvn is not on PATH: JOSDK is left out"; fi

bench-product: bench-peers ## Race the manager against its peers; ARGS="--scenario cold-1000"
	$(BIN)/python -m bench.product $(ARGS)

bench-guard: testenv ## Fail if the manager costs more than recorded; ARGS="--runs 3 --update"
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.guard $(ARGS)

bench-pages: setup ## Draw the tables and pictures of the race; ARGS="--record FILE..." first sums up
	$(BIN)/python -m bench.product.pages $(ARGS)

bench-children: testenv ## Compare examples/myapp.py with a bare loop, controller-runtime and kopf
	@$(BIN)/python -m kubewright.testing.go_module bench/contenders/myappcontrollerruntime --into $(TESTENV)
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.children $(ARGS)

bench-vcenter: testenv ## Measure a large simulated vCenter: loading, changes, churn and memory
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.vcenter_load
	$(BIN)/python -m bench.vcenter_scale $(ARGS)

bench-maximum: testenv ## Measure 2,500 hosts, 45,000 VMs and 100,000 objects; 30 minutes the first time
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.object_memory
	$(BIN)/python -m bench.maximum $(ARGS)

bench-features: testenv ## Measure what node labels, inventory metrics and the page cost; 25 minutes
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.scrape_time
	$(BIN)/python -m bench.event_clients
	$(BIN)/python -m bench.feature_overhead $(ARGS)

bench-cache: testenv ## Measure the memory of a cache by what it selects; 10 minutes
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.cache_selection $(ARGS)

bench-status: testenv ## Measure what a status costs the API server, by the form of the write
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.status_cost $(ARGS)

# Fails if a source of the binaries takes more than 90 s.
first-minutes: testenv-wheel testenv-archive ## Measure from a clone to the first HostInfo, offline
	$(BIN)/python -m hack.first_minutes $(ARGS)

walks: testenv ## Count the source files that one event enters in a real manager; 2 minutes
	$(BIN)/python -m hack.walks $(ARGS)

bench-page: setup ## Measure the page in Chromium with 500 hosts and 5,000 VMs
	@$(BIN)/python -m hack.install_chromium
	$(BIN)/python -m bench.page $(ARGS)

bench-sharding: testenv ## Compare three replicas that share the objects with one manager
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.sharding $(ARGS)

bench-vmgroup: testenv ## Measure a VmGroup of 50 and its effect on small ones
	$(PIP_INSTALL) --require-hashes -r requirements/bench.txt
	$(BIN)/python -m bench.vmgroup_scale $(ARGS)

##@ Maintain

lock: ## Pin the dependencies again after a change of requirements/*.in
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv
	for part in runtime build dev demo bench docs release lint; do \
	  (cd requirements && ../.venv-lock/bin/uv pip compile --quiet --upgrade --universal \
	    --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --no-header $$part.in -o $$part.txt) || exit 1; \
	done
	rm -rf .venv-lock
	$(PYTHON) hack/image/sbom.py

clean: ## Remove the virtual environment and test and build output; keep the cached binaries
	rm -rf $(VENV) .venv-* .testenv bench/results
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
