# The manager in an empty image: an interpreter, its libraries and our packages; no shell and no
# package manager. hack/image/install.py writes its content; tests run that without a container
# engine.
# Build it with: make docker-build IMG=...

# The digest pins the base image, so that builds are reproducible. The newest digest of the tag:
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
ARG BASE=python:3.13-slim
ARG BASE_DIGEST=sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${BASE}@${BASE_DIGEST} AS build
WORKDIR /build
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY hack/image/install.py hack/image/
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN ["python", "hack/image/install.py", "dependencies", "/image"]
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
COPY packages/kubewright/ packages/kubewright/
RUN ["python", "hack/image/install.py", "application", "/image"]

FROM scratch
ARG BASE
ARG BASE_DIGEST
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="vsphere-operators" \
      org.opencontainers.image.description="Kubernetes operators for VMware vSphere." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
COPY --from=build /image/ /
COPY hack/image/sbom.cdx.json /usr/share/sbom/vsphere-operators.cdx.json
USER 65532:65532
# The build fails here if the manager cannot start. The kubelet checks health: /healthz and /readyz.
RUN ["/manager", "-help"]
ENTRYPOINT ["/manager"]
