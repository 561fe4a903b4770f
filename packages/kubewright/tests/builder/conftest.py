"""Projects to run commands on: a new one, and a copy of the golden project with every feature."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.builder import complete
from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane
from support.golden_projects import GOLDEN

from .builder_commands import PYTHON_SERVER
from .undeployer import NAMESPACE, ONLY_IN_OVERLAY, Undeployer

OPTIONAL_WEBHOOK_MAIN = '''
from dataclasses import dataclass
from kubewright import Manager, command
from kubewright.builtin import ConfigMap
from kubewright.flags import flag
from .kinds.house import HouseController
from .kinds.house_webhook import HouseWebhook

@dataclass(frozen=True)
class Settings(command.ManagerFlags):
    """The flags."""
    hooks: bool = flag("hooks", False, "Check houses.")

def build(manager: Manager, settings: Settings) -> None:
    """Add a kind, and its webhook with -hooks."""
    manager.add(HouseController())
    if settings.hooks:
        webhook = HouseWebhook()
        webhook.needs(ConfigMap, "get")
        manager.add(webhook)
'''


@pytest.fixture(scope="session", autouse=True)
def stop_python_server() -> Iterator[None]:
    yield
    PYTHON_SERVER.stop()


@pytest.fixture(autouse=True)
def generate_in_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the process in which commands import the changed project, instead of starting Python.

    Fixtures of the session, and the tests of the quick start and of the distributions, start it.
    """
    monkeypatch.setattr(complete, "run_program", PYTHON_SERVER.run_program)


@pytest.fixture(autouse=True)
def forget_projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the modules of the projects that a test has loaded: others have the same names."""
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(folder):
            del sys.modules[name]


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))


@pytest.fixture(scope="session")
def optional_webhook_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a webhook only under the flag -hooks."""
    root = Path(
        shutil.copytree(GOLDEN / "greeter", tmp_path_factory.mktemp("optional") / "greeter")
    )
    (root / "src/greeter").rename(root / "src/optional")
    (root / "src/optional/main.py").write_text(OPTIONAL_WEBHOOK_MAIN)
    pyproject = root / "pyproject.toml"
    head, _, _ = pyproject.read_text().partition("[[tool.kubewright.resources]]")
    pyproject.write_text(
        head.replace('"greeter.', '"optional.').replace(
            "components = []", 'components = []\noptional_webhooks = "-hooks"'
        )
    )
    shutil.rmtree(root / "config")
    assert main(["manifests", "--project", str(root)]) == 0
    return root


@pytest.fixture(scope="session")
def initialized_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("new") / "greeter"
    assert main(["init", str(root), "--domain", "example.com"]) == 0
    return root


@pytest.fixture
def project(initialized_project: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(initialized_project, tmp_path / "greeter"))


@pytest.fixture(scope="module")
def cleaned_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The session's, at the end without what may affect other tests.

    Not without all objects: kubectl deletes five in a second.
    """
    yield control_plane
    for folder in ("config/crd", "config/webhook"):
        control_plane.kubectl(
            "delete", "--ignore-not-found", "-k", str(GOLDEN / "greeter" / folder)
        )


@pytest.fixture
def undeployer(
    greeter: Path, cleaned_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Undeployer]:
    plane = cleaned_plane
    monkeypatch.setenv("KUBECONFIG", str(plane.admin_kubeconfig))
    yield Undeployer(greeter, plane)
    # The other objects stay for the next test: kubectl deletes five in a second.
    if plane.kubectl("get", "--ignore-not-found", "namespace", NAMESPACE):
        plane.remove_namespace(NAMESPACE)
    plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=ONLY_IN_OVERLAY)
