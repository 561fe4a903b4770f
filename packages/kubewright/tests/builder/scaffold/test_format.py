"""What is generated is laid out as the project's own ruff would have it, whatever its configuration; a person's file is as they had it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from kubewright.builder.scaffold import format as layout

from ..builder_commands import create_api

ROOT = Path(__file__).parents[5]
RUFF = Path(sys.executable).parent / "ruff"
LONG_KIND = "AKindWithANameOfThirtyLetters9"


def scaffold_everything(root: Path, kind: str = "Greeting") -> None:
    """A kind, a webhook and another version."""
    assert create_api(root, "--short-name", "gr", kind=kind) == 0
    words = ("--defaulting", "--validation", "--conversion", "--spoke", "v2beta1")
    assert main(["create", "webhook", "--project", str(root), "--kind", kind, *words]) == 0


def run_ruff_checks(root: Path, *paths: str) -> str:
    """What `make check` of ruff would say of these files."""
    commands = (["format", "--check"], ["check"])
    done = [
        subprocess.run(
            [RUFF, *words, "--no-cache", *paths], cwd=root, capture_output=True, text=True
        )
        for words in commands
    ]
    return "".join(each.stdout + each.stderr for each in done if each.returncode)


@pytest.fixture
def without_ruff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "find_ruff", lambda root: None)


@pytest.mark.usefixtures("without_ruff")
def test_a_fresh_project_needs_no_ruff_for_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold_everything(project)
    assert run_ruff_checks(project, "src", "tests") == ""
    assert "make format" not in capsys.readouterr().out


@pytest.mark.usefixtures("without_ruff")
@pytest.mark.parametrize(("kind", "length"), [("Greeting", "100"), (LONG_KIND, "140")])
def test_without_ruff_a_person_is_told_where_it_would_have_something_to_do(
    project: Path, capsys: pytest.CaptureFixture[str], kind: str, length: str
) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 140", f"line-length = {length}"))
    scaffold_everything(project, kind)
    said = capsys.readouterr().out
    assert "\n  make format\n  make test\n" in said
    assert run_ruff_checks(project, "src", "tests") != ""


def test_a_long_name_breaks_lines_where_ruff_does(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold_everything(project, LONG_KIND)
    assert run_ruff_checks(project, "src", "tests") == ""
    assert "make format" not in capsys.readouterr().out


def test_this_repositorys_own_configuration_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    for part in ("src", "config"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests/kinds").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    for part in ("packages", "testenv"):
        (root / part).symlink_to(ROOT / part)
    assert create_api(root) == 0
    assert run_ruff_checks(root, "src", "tests") == ""
    test = (root / "tests/kinds/test_greeting.py").read_text()
    assert "import yaml\n\nfrom kubewright import Client, Key\n" in test, (
        "kubewright is this repository's own"
    )


def test_whose_an_import_is_the_configuration_says(project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace('src = ["src"]', 'src = ["src", "own"]'))
    (project / "own/kubewright/testing").mkdir(parents=True)
    (project / "own/kubewright/__init__.py").touch()
    (project / "own/kubewright/testing/controlplane.py").touch()
    scaffold_everything(project)
    assert run_ruff_checks(project, "src/greeter/kinds", "tests/kinds") == ""
    test = (project / "tests/kinds/test_greeting_v2beta1.py").read_text()
    assert "from msgspec import convert\n\nfrom greeter.kinds.greeting import Greeting\n" in test
    assert (
        "import GreetingV2beta1, GreetingV2beta1Conversion, GreetingV2beta1Spec\nfrom kubewright import Client, Key\n"
        in test
    )


def test_a_persons_file_gets_its_lines_and_no_other_layout(project: Path) -> None:
    main_file = project / "src/greeter/main.py"
    mine = main_file.read_text().replace('name="greeter")', "name = 'greeter' )")
    main_file.write_text(mine)
    assert create_api(project) == 0
    lines = main_file.read_text().splitlines()
    assert [line for line in lines if line not in mine.splitlines()] == [
        "from .kinds.greeting import GreetingController",
        "    manager.add(GreetingController())",
    ]
    assert "    return command.run(Settings, build, name = 'greeter' )" in lines


def test_a_persons_file_that_was_laid_out_stays_so(project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 140", "line-length = 40"))
    subprocess.run([RUFF, "format", "--quiet", "--no-cache", "src"], cwd=project, check=True)
    assert create_api(project) == 0
    assert (
        "    manager.add(\n        GreetingController()\n    )\n"
        not in (project / "src/greeter/main.py").read_text()
    )
    assert (
        "from .kinds.greeting import (\n    GreetingController,\n)\n"
        in (project / "src/greeter/main.py").read_text()
    )


def test_a_project_that_does_not_say_how_ruff_is_used_is_left_as_the_templates_have_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert layout.find_ruff(tmp_path) is None
    (tmp_path / "ruff.toml").write_text("")
    assert layout.find_ruff(tmp_path) == str(RUFF)


def write_broken_ruff(project: Path, script: str) -> None:
    file = project / ".venv/bin/ruff"
    file.parent.mkdir(parents=True)
    file.write_text(script)
    file.chmod(0o755)


@pytest.mark.parametrize(
    "script",
    [
        "#!/not/there\n",
        "no program",
        "#!/bin/sh\nexec sleep 60\n",
        "#!/bin/sh\nexit 2\n",
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\nprintf '\\377'\n",
    ],
    ids=["no interpreter", "no program", "hangs", "fails", "prints nothing", "prints no text"],
)
def test_where_ruff_fails_the_templates_stay_and_a_person_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    monkeypatch.setattr(layout, "_RUFF_TIMEOUT_SECONDS", 0.2)
    write_broken_ruff(project, script)
    assert create_api(project) == 0
    assert "\n  make format\n  make test\n" in capsys.readouterr().out
    assert run_ruff_checks(project, "src", "tests") == ""


def test_a_configuration_above_the_project_is_left_to_make_format(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.parent / "ruff.toml").write_text("line-length = 100\n")
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 140", 'extend = "../ruff.toml"'))
    assert create_api(project) == 0
    assert "\n  make format\n  make test\n" in capsys.readouterr().out
    assert run_ruff_checks(project, "src", "tests") != ""


def test_what_ruff_cannot_read_is_no_layout(project: Path) -> None:
    with pytest.raises(layout.RuffFailed):
        layout.format_text(str(RUFF), project, "src/greeter/x.py", "def (:\n")
