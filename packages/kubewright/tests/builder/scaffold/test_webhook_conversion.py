"""`create webhook --conversion`: another version as `create api` makes it, in kubebuilder's words."""

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

from ..builder_commands import create_api, read_project_bytes


@pytest.fixture(scope="session")
def one_version(initialized_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(initialized_project, tmp_path_factory.mktemp("one") / "greeter"))
    assert create_api(root) == 0
    return root


@pytest.fixture(scope="session")
def two_versions(one_version: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `create api` makes."""
    root = Path(shutil.copytree(one_version, tmp_path_factory.mktemp("two") / "greeter"))
    assert create_api(root, version="v2") == 0
    return read_project_files(root)


@pytest.fixture
def root(one_version: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(one_version, tmp_path / "greeter"))


def create_webhook(root: Path, *words: str, kind: str = "Greeting") -> int:
    return main(["create", "webhook", "--project", str(root), "--kind", kind, *words])


@pytest.mark.parametrize(
    "words",
    [
        ("--spoke", "v2"),
        ("--version", "v2"),
        ("--group", "demo", "--version", "v1", "--spoke", "v2"),
    ],
    ids=["in short", "as create api", "as kubebuilder"],
)
def test_it_makes_what_create_api_makes(
    root: Path,
    two_versions: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    assert create_webhook(root, "--conversion", *words) == 0
    assert read_project_files(root) == two_versions
    assert (
        "Next:\n  edit src/greeter/kinds/greeting_v2.py\n  make test\n" in capsys.readouterr().out
    )


def test_all_in_one_command_is_what_one_after_the_other_makes(root: Path, tmp_path: Path) -> None:
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
    assert [(each["version"], each.get("webhooks", each.get("conversion"))) for each in listed] == [
        ("v1", ["defaulting", "validation"]),
        ("v2", True),
        ("v3beta1", True),
        ("v4", True),
    ]
    crd = yaml.safe_load((root / "config/crd/bases/demo.example.com_greetings.yaml").read_text())[
        "spec"
    ]
    assert {each["name"]: each["storage"] for each in crd["versions"]} == {
        "v1": True,
        "v2": False,
        "v3beta1": False,
        "v4": False,
    }
    assert crd["conversion"]["strategy"] == "Webhook"


REJECTED_OPTIONS = [
    (
        ["--conversion", "--spoke", "v2"],
        "Greeting v2 has its conversion already: edit to_hub and from_hub in src/greeter/kinds/greeting_v2.py",
    ),
    (["--conversion", "--version", "v2"], "src/greeter/kinds/greeting_v2.py"),
    (["--conversion", "--spoke", "v3,v2"], "src/greeter/kinds/greeting_v2.py"),
    (
        ["--conversion", "--spoke", "v1"],
        "src/greeter/kinds/greeting.py, is the version that its controller knows",
    ),
    (["--conversion", "--spoke", "2"], "has to be like v1"),
    (["--conversion", "--version", "v2", "--spoke", "v3"], "leave --version v2 out"),
    (["--validation", "--version", "v2"], "leave --version v2 out"),
    (
        ["--validation", "--conversion", "--spoke", "v3"],
        "Write the other method into src/greeter/kinds/greeting_webhook.py",
    ),
    (["--defaulting", "--spoke", "v3"], "say --conversion too"),
    (["--version", "v1"], "say what the webhook does: --defaulting, --validation, --conversion"),
    (["--conversion", "--spoke", "v3", "--group", "other"], 'there is no kind "Greeting" here'),
    (["--conversion", "--spoke", "v3", "--kind", "Street"], "no controller of ours knows it"),
    (
        ["--conversion", "--spoke", "v3", "--kind", "Town"],
        'there is no kind "Town" here; there are: Greeting, House, Street',
    ),
]


@pytest.mark.parametrize(
    ("words", "said"),
    REJECTED_OPTIONS,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused_in_words(
    greeter: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = read_project_bytes(greeter)
    assert create_webhook(greeter, *words) == 1
    assert said in capsys.readouterr().err
    assert read_project_bytes(greeter) == before


def test_a_dry_run_shows_it_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(root)
    assert create_webhook(root, "--conversion", "--spoke", "v2", "--validation", "--dry-run") == 0
    shown = capsys.readouterr().out
    for line in (
        "+++ b/src/greeter/kinds/greeting_v2.py",
        "+    manager.add(GreetingV2Conversion())",
        "+    manager.add(GreetingWebhook())",
    ):
        assert line in shown
    assert "Next:" not in shown
    assert read_project_bytes(root) == before


def test_a_persons_file_is_overwritten_only_by_force(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = root / "src/greeter/kinds/greeting_v2.py"
    mine.write_text("# mine\n")
    before = read_project_bytes(root)
    assert create_webhook(root, "--conversion", "--spoke", "v2") == 1
    assert "src/greeter/kinds/greeting_v2.py" in capsys.readouterr().err
    assert read_project_bytes(root) == before
    assert create_webhook(root, "--conversion", "--spoke", "v2", "--force") == 0
    assert "class GreetingV2Conversion(" in mine.read_text()


def test_a_person_is_asked_for_the_kind_and_the_version(
    root: Path,
    two_versions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(["Greeting", "2", "v2"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda prompt: next(answers))
    assert main(["create", "webhook", "--project", str(root), "--conversion"]) == 0
    assert "has to be like v1" in capsys.readouterr().out
    assert read_project_files(root) == two_versions


def test_what_is_missing_is_named_where_nobody_can_be_asked(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_webhook(root, "--conversion") == 2
    assert "--spoke is missing" in capsys.readouterr().err
