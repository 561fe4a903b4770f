"""Another version of a kind: it shares the names of the kind, and is stored only on request."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from support.golden_projects import GOLDEN, read_project_files


def create_api(root: Path, *options: str) -> int:
    return main(["create", "api", "--project", str(root), *options])


def read_crd_spec(root: Path, name: str) -> Any:
    return yaml.safe_load((root / f"config/crd/bases/{name}.yaml").read_text())["spec"]


def test_storage_moves_to_the_new_version(greeter: Path) -> None:
    assert (
        create_api(greeter, "--group", "demo", "--version", "v3", "--kind", "Greeting", "--storage")
        == 0
    )
    versions = read_crd_spec(greeter, "demo.example.com_greetings")["versions"]
    assert [(version["name"], version["storage"]) for version in versions] == [
        ("v1", False),
        ("v2", False),
        ("v3", True),
    ]
    assert "storage=False" in (greeter / "src/greeter/kinds/greeting_v2.py").read_text()


def test_scope_and_plural_are_taken_from_the_kind(greeter: Path) -> None:
    assert create_api(greeter, "--group", "demo", "--version", "v1", "--kind", "House") == 0
    house = read_crd_spec(greeter, "demo.example.com_houses")
    assert (house["scope"], [version["name"] for version in house["versions"]]) == (
        "Cluster",
        ["v1", "v1alpha1"],
    )
    test = (greeter / "tests/kinds/test_house_v1.py").read_text()
    assert 'Key("", SAMPLE.metadata.name)' in test


def test_short_names_and_columns_are_kept_with_another_stored_version(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "hostinfo", tmp_path / "hostinfo"))
    before = read_crd_spec(root, "topology.corinternal.com_hostinfoes")
    assert (
        create_api(
            root, "--group", "topology", "--version", "v2", "--kind", "HostInfo", "--storage"
        )
        == 0
    )
    after = read_crd_spec(root, "topology.corinternal.com_hostinfoes")
    assert after["names"] == before["names"]
    columns = before["versions"][0]["additionalPrinterColumns"]
    assert [version["additionalPrinterColumns"] for version in after["versions"]] == [
        columns,
        columns,
    ]


def test_invalid_options_of_a_version_are_rejected(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_files(greeter)
    rejected = {
        ("v2", "Street"): "no controller of this project serves it",
        ("v2", "House", "--short-name", "ho"): "share their short names",
        ("v2", "House", "--plural", "homes"): "share the plural",
    }
    for (version, kind, *options), message in rejected.items():
        assert (
            create_api(greeter, "--group", "demo", "--version", version, "--kind", kind, *options)
            == 1
        )
        assert message in capsys.readouterr().err
    assert read_project_files(greeter) == before
