"""Another version of a kind: called as the kind is, shown as it is, and stored when that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from support.golden_projects import GOLDEN, read_project_files


def create_api(root: Path, *words: str) -> int:
    return main(["create", "api", "--project", str(root), *words])


def read_crd_spec(root: Path, name: str) -> Any:
    return yaml.safe_load((root / f"config/crd/bases/{name}.yaml").read_text())["spec"]


def test_the_stored_version_moves_and_only_that(greeter: Path) -> None:
    assert (
        create_api(greeter, "--group", "demo", "--version", "v3", "--kind", "Greeting", "--storage")
        == 0
    )
    versions = read_crd_spec(greeter, "demo.example.com_greetings")["versions"]
    assert [(each["name"], each["storage"]) for each in versions] == [
        ("v1", False),
        ("v2", False),
        ("v3", True),
    ]
    assert "storage=False" in (greeter / "src/greeter/kinds/greeting_v2.py").read_text()


def test_scope_and_plural_are_the_kinds_and_need_not_be_said_again(greeter: Path) -> None:
    assert create_api(greeter, "--group", "demo", "--version", "v1", "--kind", "House") == 0
    house = read_crd_spec(greeter, "demo.example.com_houses")
    assert (house["scope"], [each["name"] for each in house["versions"]]) == (
        "Cluster",
        ["v1", "v1alpha1"],
    )
    assert 'Key("", NAME)' in (greeter / "tests/kinds/test_house_v1.py").read_text()


def test_short_names_and_columns_stay_with_another_stored_version(tmp_path: Path) -> None:
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
    assert [each["additionalPrinterColumns"] for each in after["versions"]] == [columns, columns]


def test_what_makes_no_sense_for_a_version_is_refused(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_files(greeter)
    refused = {
        ("v2", "Street"): "no controller of ours knows it",
        ("v2", "House", "--short-name", "ho"): "share their short names",
        ("v2", "House", "--plural", "homes"): "share the plural",
    }
    for (version, kind, *more), said in refused.items():
        assert (
            create_api(greeter, "--group", "demo", "--version", version, "--kind", kind, *more) == 1
        )
        assert said in capsys.readouterr().err
    assert read_project_files(greeter) == before
