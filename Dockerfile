# The manager in two stages: what builds it stays behind. make docker-build IMG=...
FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /venv
COPY requirements/runtime.txt requirements/
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
COPY packages/kubewright/ packages/kubewright/
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps ./packages/kubewright . \
    && rm -rf /venv/lib/python3*/site-packages/pip*

FROM python:3.13-slim
COPY --from=build /venv /venv
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["/venv/bin/manager"]
