"""Projects to try commands on: a fresh one, and the golden one with everything, which tests/test_golden_projects.py compares with what is made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from support.golden_projects import GOLDEN

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
    """A kind, and its webhook if it is wanted."""
    manager.add(HouseController())
    if settings.hooks:
        webhook = HouseWebhook()
        webhook.needs(ConfigMap, "get")
        manager.add(webhook)
'''


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))


@pytest.fixture(scope="session")
def optional_webhook_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose webhook is there only with -hooks."""
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path_factory.mktemp("choosy") / "greeter"))
    (root / "src/greeter").rename(root / "src/choosy")
    (root / "src/choosy/main.py").write_text(OPTIONAL_WEBHOOK_MAIN)
    pyproject = root / "pyproject.toml"
    head, _, _ = pyproject.read_text().partition("[[tool.kubewright.resources]]")
    pyproject.write_text(
        head.replace('"greeter.', '"choosy.').replace(
            "components = []", 'components = []\noptional_webhooks = "-hooks"'
        )
    )
    shutil.rmtree(root / "config")
    assert main(["manifests", "--project", str(root)]) == 0
    return root


@pytest.fixture(scope="session")
def initialized_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fresh") / "greeter"
    assert main(["init", str(root), "--domain", "example.com"]) == 0
    return root


@pytest.fixture
def project(initialized_project: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(initialized_project, tmp_path / "greeter"))
