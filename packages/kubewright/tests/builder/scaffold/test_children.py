"""`create api --owns` and `--external`: children, and kinds of other projects."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane

from ..builder_commands import (
    commit_project,
    create_api,
    create_webhook,
    read_project_bytes,
    run_git,
    run_manifests,
)

WELL_KNOWN_KINDS = [
    *("apps/v1/DaemonSet", "apps/v1/Deployment", "apps/v1/StatefulSet"),
    *("batch/v1/CronJob", "batch/v1/Job"),
    *("v1/ConfigMap", "v1/PersistentVolumeClaim", "v1/Secret", "v1/Service", "v1/ServiceAccount"),
    "autoscaling/v2/HorizontalPodAutoscaler",
    "networking.k8s.io/v1/Ingress",
]
PRINT_CHILDREN = """
import json
from greeter.kinds import app
from kubewright import ObjectMeta
owner = app.App(metadata=ObjectMeta(name="example"), spec=app.AppSpec(image="web:1", port=8080))
builders = [value for name, value in vars(app).items() if name.startswith("build_")]
print(json.dumps([build(owner).encode() for build in builders], default=str))
"""
IMPORTED_MODULE = '''
"""Types of cert-manager."""

from __future__ import annotations

from kubewright import Resource, kind
from msgspec import Struct


class CertificateSpec(Struct, kw_only=True):
    secretName: str = ""


class CertificateStatus(Struct, kw_only=True):
    revision: int = 0


@kind("cert-manager.io/v1", plural="certificates", external=True)
class Certificate(Resource[CertificateSpec, CertificateStatus]):
    """A certificate."""
'''


def create_external(project: Path, kind: str, *options: str) -> int:
    return main(["create", "api", "--project", str(project), "--external", kind, *options])


def write_imported_module(project: Path) -> None:
    folder = project / "src/greeter/external"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "cert_manager_io_v1.py").write_text(IMPORTED_MODULE)
    # A command is a process of its own. Here the package of an earlier project may be loaded.
    for name in [name for name in sys.modules if name.partition(".")[0] == "greeter"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def run_in_project(project: Path, *arguments: str) -> str:
    paths = [str(project / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=project, env=environ, check=True, capture_output=True, text=True
    ).stdout


def test_real_api_server_accepts_every_scaffolded_child(
    project: Path, control_plane: ControlPlane, namespace: str
) -> None:
    owns = [option for kind in WELL_KNOWN_KINDS for option in ("--owns", kind)]
    fields = ["--spec", "image:str!", "--spec", "port:int32=80"]
    assert create_api(project, *fields, *owns, kind="App") == 0
    children = json.loads(run_in_project(project, "-c", PRINT_CHILDREN))
    assert len(children) == len(WELL_KNOWN_KINDS)
    for child in children:
        options = ("-n", namespace, "--dry-run=server", "--validate=strict", "-o", "json")
        output = control_plane.kubectl("create", *options, "-f", "-", stdin=json.dumps(child))
        assert json.loads(output)["metadata"]["name"] == "example"
    text = json.dumps(children)
    assert text.count('"image": "web:1"') == 5
    assert text.count("8080") == 2


def test_controller_owns_and_applies_the_children(project: Path) -> None:
    assert create_api(project, "--owns", "apps/v1/Deployment,v1/Service") == 0
    module = (project / "src/greeter/kinds/greeting.py").read_text()
    assert "self.owns(Deployment, Service)" in module
    assert "self.apply(" in module
    assert "greeting.status.echo = greeting.spec.foo" in module
    role = yaml.safe_load((project / "config/rbac/role.yaml").read_text())
    verbs = {rule["resources"][0]: rule["verbs"] for rule in role["rules"]}
    assert verbs["deployments"] == ["create", "delete", "list", "patch", "watch"]
    pyproject = tomllib.loads((project / "pyproject.toml").read_text())
    assert any(item.startswith("kubewright-api>=") for item in pyproject["project"]["dependencies"])
    assert "kubewright-api>=" in (project / "requirements/runtime.in").read_text()


def test_other_children_are_left_to_the_user(project: Path) -> None:
    kind = "rbac.authorization.k8s.io/v1/ClusterRole"
    assert create_api(project, "--owns", kind, "--owns", "policy/v1/PodDisruptionBudget") == 0
    module = (project / "src/greeter/kinds/greeting.py").read_text()
    assert "self.owns(ClusterRole, cross_namespace=True)" in module
    assert "def build_poddisruptionbudget(greeting: Greeting) -> PodDisruptionBudget:" in module


def test_dry_run_leaves_the_requirements(project: Path) -> None:
    before = read_project_bytes(project)
    assert create_api(project, "--owns", "v1/Service", "--dry-run") == 0
    assert read_project_bytes(project) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--owns", "Deployment"], "must be GROUP/VERSION/KIND, such as apps/v1/Deployment"),
        (["--owns", "apps/v1/Deploymnt"], "did you mean Deployment?"),
        (["--owns", "apps/v1/Service"], "kubewright.api.apps_v1 has no kind apps/v1/Service"),
        (["--owns", "cert-manager.io/v1/Certificate"], "first run `kubewright import`"),
        (["--owns", "v1/Service,v1/Service"], "twice"),
        (["--owns", "v1/Service", "--cluster-scoped"], "does not work with --cluster-scoped"),
        (["--owns", "v1/Service", "--cluster-wide"], "does not work with --cluster-scoped"),
        (["--owns", "v1/Service", "--controller=false"], "omit --controller=false"),
        (["--owns", "apps/v1/Deployment", "--kind", "Container"], "a type that the children need"),
        (
            ["--owns", "v1/Service", "--spec", "a:Service", "--type", "Service=a:str"],
            "a type that the children need",
        ),
    ],
)
def test_children_that_cannot_be_scaffolded_are_rejected(
    project: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    before = read_project_bytes(project)
    assert create_api(project, *options) == 1
    assert message in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_external_kind_gets_a_controller_and_no_crd(project: Path) -> None:
    assert create_external(project, "apps/v1/Deployment") == 0
    assert list((project / "config/crd").rglob("*deployments*")) == []
    assert list((project / "config/samples").glob("*")) == []
    resources = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["kubewright"][
        "resources"
    ]
    assert resources == [
        {
            "group": "apps",
            "version": "v1",
            "kind": "Deployment",
            "plural": "deployments",
            "path": "kubewright.api.apps_v1:Deployment",
            "external": True,
        }
    ]
    run_in_project(project, "-m", "pytest", "-q", "tests/kinds/test_deployment.py")


def test_imported_kind_is_found_by_its_api_version(project: Path) -> None:
    write_imported_module(project)
    kind = "cert-manager.io/v1/Certificate"
    assert create_external(project, kind) == 0
    module = (project / "src/greeter/kinds/certificate.py").read_text()
    assert "from ..external.cert_manager_io_v1 import Certificate\n" in module
    assert create_api(project, "--owns", kind) == 0
    assert "kubewright-api" not in (project / "pyproject.toml").read_text()
    assert run_manifests(project, "--check").returncode == 0
    run_in_project(project, "-m", "pytest", "-q", "tests/kinds/test_certificate.py")


def test_versions_and_webhooks_of_an_external_kind_are_rejected(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_external(project, "apps/v1/Deployment") == 0
    assert create_external(project, "apps/v1/Deployment") == 1
    assert "already exists" in capsys.readouterr().err
    assert create_webhook(project, "--validation", kind="Deployment") == 1
    assert "Webhook[Deployment]" in capsys.readouterr().err
    for flag, value in (("--kind", "Other"), ("--short-name", "po"), ("--type", "Port=name:str")):
        assert create_external(project, "v1/Pod", flag, value) == 1
        assert f"omit {flag}\n" in capsys.readouterr().err
    assert create_external(project, "v1/Pod", "--owns", "v1/Service") == 1
    assert "self.owns" in capsys.readouterr().err


def test_delete_undoes_them_with_the_dependency(project: Path) -> None:
    commit_project(project)
    before = read_project_bytes(project)
    assert create_api(project, "--owns", "v1/Service") == 0
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "test: children")
    with_children = read_project_bytes(project)
    assert create_external(project, "v1/Pod") == 0
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "test: an external kind")
    assert main(["delete", "api", "--project", str(project), "--kind", "Pod"]) == 0
    assert read_project_bytes(project) == with_children
    run_git(project, "commit", "-qam", "test: delete")
    assert main(["delete", "api", "--project", str(project), "--kind", "Greeting"]) == 0
    assert read_project_bytes(project) == before
