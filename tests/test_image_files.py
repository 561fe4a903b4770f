"""Checks of files that tests cannot run: Dockerfile, .dockerignore, SBOM, kind configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.image.sbom import build_bom, parse_lock, render_sbom
from support.dockerfile import Instruction, is_in_build_context, read_instructions, read_stages

ROOT = Path(__file__).parents[1]
NONROOT = "65532:65532"


def instruction_values(stage: list[Instruction], wanted: str) -> list[str]:
    return [rest for word, rest in stage if word == wanted]


# The Dockerfile


def test_base_image_is_pinned_by_a_digest_that_an_argument_can_replace() -> None:
    build, final = read_stages()
    assert instruction_values(build, "FROM") == ["${BASE}@${BASE_DIGEST} AS build"]
    assert instruction_values(final, "FROM") == ["scratch"]
    arguments = dict(
        rest.split("=", 1) for word, rest in read_instructions() if word == "ARG" and "=" in rest
    )
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", arguments["BASE_DIGEST"])
    assert arguments["BASE"] == "python:3.13-slim"


def test_image_runs_as_nonroot_without_a_shell_or_a_health_check() -> None:
    _, final = read_stages()
    assert instruction_values(final, "USER") == [NONROOT]
    assert instruction_values(final, "ENTRYPOINT") == ['["/manager"]']
    assert not instruction_values(final, "HEALTHCHECK")
    assert not instruction_values(final, "CMD")
    assert all(
        json.loads(command)
        for stage in read_stages()
        for command in instruction_values(stage, "RUN")
    ), "the shell form needs a shell"
    assert final.index(("USER", NONROOT)) < final.index(("RUN", '["/manager", "-help"]')), (
        "the trial start does not run as the user of the image"
    )


def test_labels_name_the_image_and_its_base() -> None:
    _, final = read_stages()
    (labels,) = instruction_values(final, "LABEL")
    values = {
        key.rpartition("image.")[2]: value for key, value in re.findall(r'(\S+)="([^"]*)"', labels)
    }
    project = (ROOT / "pyproject.toml").read_text()
    assert f'description = "{values["description"]}"' in project
    assert f'license = "{values["licenses"]}"' in project
    assert values["title"] == "vsphere-operators"
    assert {values[key] for key in ("version", "revision", "base.name", "base.digest")} == {
        "${VERSION}",
        "${REVISION}",
        "${BASE}",
        "${BASE_DIGEST}",
    }
    declared = {rest.partition("=")[0] for rest in instruction_values(final, "ARG")}
    assert declared == {"VERSION", "REVISION", "BASE", "BASE_DIGEST"}


def list_copied_sources() -> list[str]:
    """The paths that the Dockerfile copies from the repository."""
    copies = [rest.split() for word, rest in read_instructions() if word == "COPY"]
    return [
        source.rstrip("/")
        for copy in copies
        if not copy[0].startswith("--from")
        for source in copy[:-1]
    ]


def test_copied_paths_exist_and_are_in_the_build_context() -> None:
    assert len(list_copied_sources()) > 7
    for source in list_copied_sources():
        assert (ROOT / source).exists(), source
        assert is_in_build_context(source), source


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "tests/test_image_files.py",
        "packages/kubewright/tests/support/api_harness.py",
        "src/a/__pycache__/b.pyc",
        ".env",
    ],
)
def test_other_paths_are_not_in_the_build_context(path: str) -> None:
    assert not is_in_build_context(path)


def test_image_and_development_use_the_same_build_backend() -> None:
    dev = {
        (pin.name, pin.version, pin.sha256)
        for pin in parse_lock((ROOT / "requirements/dev.txt").read_text())
    }
    build = {
        (pin.name, pin.version, pin.sha256)
        for pin in parse_lock((ROOT / "requirements/build.txt").read_text())
    }
    assert any(name == "hatchling" for name, _, _ in build)
    assert build <= dev


# The SBOM


def test_sbom_is_current() -> None:
    assert (ROOT / "hack/image/sbom.cdx.json").read_text() == render_sbom(), "run `make sbom`"


def test_sbom_has_every_pin_with_every_hash() -> None:
    bom = json.loads((ROOT / "hack/image/sbom.cdx.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    lock = (ROOT / "requirements/runtime.txt").read_text()
    packages = [item for item in bom["components"] if item["name"] != "kubewright"]
    assert [f"{package['name']}=={package['version']}" for package in packages] == re.findall(
        r"^([a-z0-9-]+==[^ ]+)", lock, re.MULTILINE
    )
    assert [
        digest["content"] for package in packages for digest in package["hashes"]
    ] == re.findall(r"sha256:(\w+)", lock)
    assert all(package["hashes"] for package in packages)


def test_sbom_has_the_dependency_graph() -> None:
    bom = json.loads((ROOT / "hack/image/sbom.cdx.json").read_text())
    components = {
        bom["metadata"]["component"]["bom-ref"],
        *(component["bom-ref"] for component in bom["components"]),
    }
    edges = {entry["ref"]: set(entry["dependsOn"]) for entry in bom["dependencies"]}
    assert edges.keys() == components
    needed = set().union(*edges.values())
    assert needed == components - {bom["metadata"]["component"]["bom-ref"]}, (
        "a component is listed that no other requires"
    )


PROJECT = {"name": "ours", "version": "1", "license": "MIT"}
LIBRARY = {
    "name": "lib",
    "version": "2",
    "license": "MIT",
    "dependencies": ["B_c>=1"],
    "optional-dependencies": {"tls": []},
}


PIN_A = (
    f"a==1.0 ; python_version < '3.12' \\\n    --hash=sha256:{'0' * 64}\n"
    "    # via\n    #   b-c\n    #   d\n"
)
PIN_B = (
    f"b-c==2.0 \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{'2' * 64}\n"
    "    # via -r runtime.in\n"
)
PIN_D = f"d==3.0 \\\n    --hash=sha256:{'3' * 64}\n    # via b-c\n"


def test_lock_becomes_components_and_their_graph() -> None:
    bom = build_bom(PIN_A + PIN_B + PIN_D, PROJECT, LIBRARY)
    assert [component["purl"] for component in bom["components"]] == [
        "pkg:pypi/lib@2",
        "pkg:pypi/a@1.0",
        "pkg:pypi/b-c@2.0",
        "pkg:pypi/d@3.0",
    ]
    assert bom["components"][1]["properties"] == [
        {"name": "python:marker", "value": "python_version < '3.12'"}
    ]
    assert [digest["content"] for digest in bom["components"][2]["hashes"]] == ["1" * 64, "2" * 64]
    assert {entry["ref"]: entry["dependsOn"] for entry in bom["dependencies"]} == {
        "pkg:pypi/ours@1": ["pkg:pypi/lib@2"],
        "pkg:pypi/lib@2": ["pkg:pypi/b-c@2.0"],
        "pkg:pypi/a@1.0": [],
        "pkg:pypi/b-c@2.0": ["pkg:pypi/a@1.0", "pkg:pypi/d@3.0"],
        "pkg:pypi/d@3.0": ["pkg:pypi/a@1.0"],
    }


def test_serial_number_is_derived_from_the_content() -> None:
    assert build_bom(PIN_A, PROJECT, LIBRARY) == build_bom(PIN_A, PROJECT, LIBRARY)
    assert (
        build_bom(PIN_A, PROJECT, LIBRARY)["serialNumber"]
        != build_bom(PIN_B, PROJECT, LIBRARY)["serialNumber"]
    )


def test_pin_without_a_hash_is_rejected() -> None:
    with pytest.raises(SystemExit, match=r"not a pin with a hash; run `make lock`:\na==1\.0"):
        parse_lock("a==1.0\n    # via -r runtime.in\n")


# make


def run_make(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs make without the environment of a make that runs the tests."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "KUBECTL"))
    }
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=environ | more,
        capture_output=True,
        text=True,
        timeout=60,
    )


def dry_run_make(*arguments: str) -> list[str]:
    """The commands that make would run, with continued lines joined."""
    done = run_make("-n", *arguments)
    assert done.returncode == 0, done.stderr
    return [
        re.sub(r"\s+", " ", line).strip() for line in done.stdout.replace("\\\n", " ").splitlines()
    ]


def test_make_builds_and_pushes_with_the_selected_tool() -> None:
    build, push = dry_run_make(
        "docker-build", "docker-push", "IMG=example.com/a:v1", "CONTAINER_TOOL=podman"
    )
    assert re.fullmatch(
        r"podman build --build-arg VERSION=\d+\.\d+\.\d+ --build-arg REVISION=\S+ "
        r"-t example.com/a:v1 \.",
        build,
    )
    assert push == "podman push example.com/a:v1"
    digest = f"sha256:{'a' * 64}"
    (build,) = dry_run_make("docker-build", f"BASE_DIGEST={digest}")
    assert f" --build-arg BASE_DIGEST={digest} -t controller:latest ." in build
    assert build.startswith("docker build ")


CLUSTER_TARGETS = ("install", "uninstall", "deploy", "undeploy")


def test_make_installs_and_deploys_with_kubectl() -> None:
    kubectl, python = "/opt/kubectl", "python -m kubewright"
    commands = {
        target: dry_run_make(target, "IMG=example.com/a:v1", f"KUBECTL={kubectl}")[-1]
        for target in CLUSTER_TARGETS
    }
    assert commands["install"] == f"{kubectl} apply --server-side -k config/crd"
    assert commands["uninstall"].endswith(f"{python} uninstall --kubectl {kubectl}")
    assert commands["deploy"].endswith(
        f"{python} deploy --image example.com/a:v1 --kubectl {kubectl}"
    )
    (with_overlay,) = dry_run_make(
        "deploy", "OVERLAY=config/overlays/ha", "ARGS=--force-conflicts", f"KUBECTL={kubectl}"
    )[-1:]
    # Without IMG, the image of the Deployment is kept.
    assert with_overlay.endswith(
        f"{python} deploy --kubectl {kubectl} --overlay config/overlays/ha --force-conflicts"
    )
    assert commands["undeploy"].endswith(f"{python} undeploy --kubectl {kubectl}")


def write_program(path: Path) -> Path:
    """A program that does nothing."""
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_make_uses_an_installed_kubectl_and_builds_one_otherwise(tmp_path: Path) -> None:
    (tmp_path / "make").symlink_to(shutil.which("make") or "")
    arguments = ("-n", "install", f"TESTENV={tmp_path}/testenv")
    without = run_make(*arguments, PATH=str(tmp_path)).stdout
    assert f"kubewright.testing.binaries --only kubectl --into {tmp_path}/testenv\n" in without
    apply = "apply --server-side -k config/crd"
    assert without.splitlines()[-1] == f"{tmp_path}/testenv/kubectl {apply}"
    ours = write_program(tmp_path / "kubectl")
    output = run_make(*arguments, PATH=str(tmp_path)).stdout
    assert "kubewright.testing.binaries" not in output
    assert "pip install" not in output
    assert output.splitlines()[-1] == f"{ours} {apply}"


@pytest.mark.parametrize(
    ("text", "configured"),
    [
        ("apiVersion: v1\ncurrent-context: kind-ours\n", True),
        ('current-context: "ours"\n', True),
        ('{"kind": "Config", "current-context": "ours"}', True),
        ('current-context: ""\n', False),
        ('{"kind": "Config", "current-context": ""}', False),
        ("", False),
        (None, False),
    ],
)
def test_make_reports_that_no_cluster_is_configured(
    tmp_path: Path, text: str | None, configured: bool
) -> None:
    (tmp_path / "empty").touch()
    if text is not None:
        (tmp_path / "config").write_text(text)
    done = run_make(
        "cluster", KUBECONFIG=f"{tmp_path}/empty:{tmp_path}/config", KUBERNETES_SERVICE_HOST=""
    )
    message = [
        "No Kubernetes cluster is configured: set KUBECONFIG, "
        "or create a local cluster with: make kind-up",
        "Without containers, start an API server in another terminal, and paste what it prints: "
        "make setup && .venv/bin/kubewright test-env --controllers",
    ]
    assert (done.returncode == 0, done.stdout, done.stderr.splitlines()[:2]) == (
        configured,
        "",
        [] if configured else message,
    )


def test_make_checks_for_a_cluster_first(tmp_path: Path) -> None:
    assert (
        run_make(
            "cluster", KUBECONFIG="", HOME=str(tmp_path), KUBERNETES_SERVICE_HOST="10.0.0.1"
        ).returncode
        == 0
    )
    for target in CLUSTER_TARGETS:
        assert "No Kubernetes cluster is configured" in dry_run_make(target)[0], target


# The local cluster


def test_make_creates_loads_and_deletes_the_local_cluster() -> None:
    name = read_kind_config()["name"]
    *_, up = dry_run_make("kind-up")
    assert (
        up == f"kind get clusters | grep -qx {name} || kind create cluster --name {name} "
        "--config local-dev-cluster/kind-config.yml"
    )
    *_, folder, save, load = dry_run_make(
        "kind-load", "IMG=ours:dev", "KIND=/opt/kind", "CONTAINER_TOOL=podman"
    )
    assert folder == "mkdir -p dist"
    assert save == "podman save --output dist/image.tar ours:dev"
    assert load == f"/opt/kind load image-archive dist/image.tar --name {name}"
    assert dry_run_make("kind-down", "KIND_CLUSTER=other") == ["kind delete cluster --name other"]


def test_make_names_what_to_install_without_kind_or_engine(tmp_path: Path) -> None:
    (tmp_path / "make").symlink_to(shutil.which("make") or "")
    for name in ("none", "kind"):
        write_program(tmp_path / name)
        done = run_make("kind-up", PATH=str(tmp_path))
        assert done.returncode
        assert done.stderr.startswith(
            "Install kind (https://kind.sigs.k8s.io) and docker or podman; "
        )


@pytest.mark.parametrize(
    "image",
    ["controller:latest", "controller", "registry.example.com:5000/a", "example.com/a:latest"],
)
def test_image_with_the_tag_latest_is_not_loaded(image: str) -> None:
    done = run_make("kind-load", f"IMG={image}", "KIND=false", "CONTAINER_TOOL=false")
    assert done.returncode
    assert f"{image} has the tag latest" in done.stdout
    assert "IMG=vsphere-operators:dev" in done.stdout


def read_kind_config() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(
        (ROOT / "local-dev-cluster/kind-config.yml").read_text()
    )
    return config


def test_configuration_of_the_local_cluster_is_valid() -> None:
    config = read_kind_config()
    assert (config["kind"], config["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert config.keys() <= {
        "kind",
        "apiVersion",
        "name",
        "nodes",
        "networking",
        "featureGates",
        "runtimeConfig",
    }, "kind rejects other fields"
    assert re.fullmatch(r"[a-z0-9.-]+", config["name"])
    roles = [node["role"] for node in config["nodes"]]
    assert roles.count("control-plane") == 1
    assert roles.count("worker") == 2
