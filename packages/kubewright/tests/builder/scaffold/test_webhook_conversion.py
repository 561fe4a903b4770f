"""`create webhook --conversion` adds the same version as `create api`."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from kubewright.builder.cli import main
from support.golden_projects import read_project_files

from ..builder_commands import create_api, create_webhook, read_project_bytes


@pytest.fixture(scope="session")
def one_version(initialized_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(initialized_project, tmp_path_factory.mktemp("one") / "greeter"))
    assert create_api(root) == 0
    return root


@pytest.fixture(scope="session")
def two_versions(one_version: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files after `create api --version v2`."""
    root = Path(shutil.copytree(one_version, tmp_path_factory.mktemp("two") / "greeter"))
    assert create_api(root, version="v2") == 0
    return read_project_files(root)


@pytest.fixture
def root(one_version: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(one_version, tmp_path / "greeter"))


@pytest.mark.parametrize(
    "options",
    [
        ("--spoke", "v2"),
        ("--version", "v2"),
        ("--group", "demo", "--version", "v1", "--spoke", "v2"),
    ],
    ids=["spoke", "version", "hub and spoke"],
)
def test_conversion_creates_the_files_of_create_api(
    root: Path,
    two_versions: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    assert create_webhook(root, "--conversion", *options) == 0
    assert read_project_files(root) == two_versions
    assert (
        "Next:\n  edit src/greeter/kinds/greeting_v2.py\n  make test\n" in capsys.readouterr().out
    )


def test_one_command_equals_several_commands(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    assert (
        create_webhook(
            root,
            "--defaulting",
            "--validation",
            "--conversion",
            "--spoke",
            "v2,v3beta1",
            "--spoke",
            "v4",
        )
        == 0
    )
    assert create_webhook(other, "--defaulting", "--validation") == 0
    for version in ("v2", "v3beta1", "v4"):
        assert create_api(other, version=version) == 0
    assert read_project_files(root) == read_project_files(other)
    listed = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["kubewright"]["resources"]
    assert [
        (entry["version"], entry.get("webhooks", entry.get("conversion"))) for entry in listed
    ] == [
        ("v1", ["defaulting", "validation"]),
        ("v2", True),
        ("v3beta1", True),
        ("v4", True),
    ]
    crd = yaml.safe_load((root / "config/crd/bases/demo.example.com_greetings.yaml").read_text())[
        "spec"
    ]
    assert {version["name"]: version["storage"] for version in crd["versions"]} == {
        "v1": True,
        "v2": False,
        "v3beta1": False,
        "v4": False,
    }
    assert crd["conversion"]["strategy"] == "Webhook"


REJECTED_OPTIONS = [
    (
        ["--conversion", "--spoke", "v2"],
        "Greeting v2 already has a conversion: "
        "edit to_hub and from_hub in src/greeter/kinds/greeting_v2.py",
    ),
    (["--conversion", "--version", "v2"], "src/greeter/kinds/greeting_v2.py"),
    (["--conversion", "--spoke", "v3,v2"], "src/greeter/kinds/greeting_v2.py"),
    (
        ["--conversion", "--spoke", "v1"],
        "src/greeter/kinds/greeting.py, is the version of the controller",
    ),
    (["--conversion", "--spoke", "2"], "must be like v1"),
    (["--conversion", "--version", "v2", "--spoke", "v3"], "omit --version v2"),
    (["--validation", "--version", "v2"], "omit --version v2"),
    (
        ["--validation", "--conversion", "--spoke", "v3"],
        "Add the other method to src/greeter/kinds/greeting_webhook.py",
    ),
    (["--defaulting", "--spoke", "v3"], "add --conversion"),
    (
        ["--version", "v1"],
        "specify what the webhook does: one or more of --defaulting, --validation",
    ),
    (["--conversion", "--spoke", "v3", "--group", "other"], 'this project has no kind "Greeting"'),
    (
        ["--conversion", "--spoke", "v3", "--kind", "Street"],
        "no controller of this project serves it",
    ),
    (
        ["--conversion", "--spoke", "v3", "--kind", "Town"],
        'this project has no kind "Town"; its kinds: Greeting, House, Pod, Site, Street',
    ),
]


@pytest.mark.parametrize(
    ("options", "message"),
    REJECTED_OPTIONS,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_rejected(
    greeter: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    before = read_project_bytes(greeter)
    assert create_webhook(greeter, *options) == 1
    assert message in capsys.readouterr().err
    assert read_project_bytes(greeter) == before


def test_dry_run_shows_the_change_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(root)
    assert create_webhook(root, "--conversion", "--spoke", "v2", "--validation", "--dry-run") == 0
    output = capsys.readouterr().out
    for line in (
        "+++ b/src/greeter/kinds/greeting_v2.py",
        "+    manager.add(GreetingV2Conversion())",
        "+    manager.add(GreetingWebhook())",
    ):
        assert line in output
    assert "Next:" not in output
    assert read_project_bytes(root) == before


def test_existing_file_is_overwritten_only_with_force(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    existing = root / "src/greeter/kinds/greeting_v2.py"
    existing.write_text("# by hand\n")
    before = read_project_bytes(root)
    assert create_webhook(root, "--conversion", "--spoke", "v2") == 1
    assert "src/greeter/kinds/greeting_v2.py" in capsys.readouterr().err
    assert read_project_bytes(root) == before
    assert create_webhook(root, "--conversion", "--spoke", "v2", "--force") == 0
    assert "class GreetingV2Conversion(" in existing.read_text()


def test_user_is_asked_for_the_kind_and_the_version(
    root: Path,
    two_versions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(["Greeting", "2", "v2"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda prompt: next(answers))
    assert main(["create", "webhook", "--project", str(root), "--conversion"]) == 0
    assert "must be like v1" in capsys.readouterr().out
    assert read_project_files(root) == two_versions


def test_missing_option_is_named_without_a_terminal(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_webhook(root, "--conversion") == 2
    assert "--spoke is required when standard input is not a terminal" in capsys.readouterr().err
