"""Generated code is formatted as the project's own ruff does; files of the user keep theirs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.builder.scaffold import format as ruff_format

from ..builder_commands import create_api, create_webhook

ROOT = Path(__file__).parents[5]
RUFF = Path(sys.executable).parent / "ruff"
LONG_KIND = "AKindWithANameOfThirtyLetters9"
OWNED_KINDS = (
    "apps/v1/Deployment,apps/v1/StatefulSet,batch/v1/CronJob,v1/PersistentVolumeClaim,"
    "networking.k8s.io/v1/Ingress,autoscaling/v2/HorizontalPodAutoscaler,v1/Pod"
)


def scaffold_everything(root: Path, kind: str = "Greeting") -> None:
    assert create_api(root, "--short-name", "gr", kind=kind) == 0
    options = ("--defaulting", "--validation", "--conversion", "--spoke", "v2beta1")
    assert create_webhook(root, *options, kind=kind) == 0


def run_ruff_checks(root: Path, *paths: str) -> str:
    """The findings of ruff in `make check`."""
    commands = (["format", "--check"], ["check"])
    processes = [
        subprocess.run(
            [RUFF, *command, "--no-cache", *paths], cwd=root, capture_output=True, text=True
        )
        for command in commands
    ]
    return "".join(process.stdout + process.stderr for process in processes if process.returncode)


@pytest.fixture
def without_ruff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruff_format, "_find_ruff", lambda root: None)


@pytest.mark.usefixtures("without_ruff")
def test_templates_are_formatted_for_a_new_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold_everything(project)
    assert run_ruff_checks(project, "src", "tests") == ""
    assert "make format" not in capsys.readouterr().out


@pytest.mark.usefixtures("without_ruff")
@pytest.mark.parametrize(("kind", "length"), [("Greeting", "80"), (LONG_KIND, "100")])
def test_without_ruff_make_format_is_suggested_if_needed(
    project: Path, capsys: pytest.CaptureFixture[str], kind: str, length: str
) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 100", f"line-length = {length}"))
    scaffold_everything(project, kind)
    assert "\n  make format\n  make test\n" in capsys.readouterr().out
    assert run_ruff_checks(project, "src", "tests") != ""


@pytest.mark.usefixtures("without_ruff")
@pytest.mark.parametrize("length", [12, 20, 24])
def test_code_of_a_kind_with_a_long_name_is_formatted_without_ruff(
    project: Path, capsys: pytest.CaptureFixture[str], length: int
) -> None:
    kind = LONG_KIND[:length]
    scaffold_everything(project, kind)
    fields = ["--spec", "replicas:int32=1", "--spec", "port:int32=80"]
    assert create_api(project, *fields, "--owns", OWNED_KINDS, kind=f"B{kind[1:]}") == 0
    assert create_api(project, "--owns", "v1/Service", kind=f"C{kind[1:]}") == 0
    assert run_ruff_checks(project, "src", "tests") == ""
    assert "make format" not in capsys.readouterr().out


def test_code_of_a_kind_with_a_long_name_is_formatted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaffold_everything(project, LONG_KIND)
    assert run_ruff_checks(project, "src", "tests") == ""
    assert "make format" not in capsys.readouterr().out


def test_code_is_formatted_with_the_configuration_of_this_repository(tmp_path: Path) -> None:
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
    assert "import ControlPlane\nfrom vsphere_operators.kinds.greeting import" in test, (
        "kubewright is this repository's own"
    )


def test_configuration_decides_which_imports_are_first_party(project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace('src = ["src"]', 'src = ["src", "own"]'))
    (project / "own/kubewright/testing").mkdir(parents=True)
    (project / "own/kubewright/__init__.py").touch()
    (project / "own/kubewright/testing/controlplane.py").touch()
    scaffold_everything(project)
    assert run_ruff_checks(project, "src/greeter/kinds", "tests/kinds") == ""
    test = (project / "tests/kinds/test_greeting_v2beta1.py").read_text()
    assert "import Path\n\nfrom greeter.kinds.greeting import Greeting\n" in test
    assert ", GreetingV2beta1Conversion\nfrom kubewright import Client, Key\n" in test


def test_unformatted_file_of_the_user_gets_new_lines_only(project: Path) -> None:
    main_file = project / "src/greeter/main.py"
    edited = main_file.read_text().replace('name="greeter")', "name = 'greeter' )")
    main_file.write_text(edited)
    assert create_api(project) == 0
    lines = main_file.read_text().splitlines()
    assert [line for line in lines if line not in edited.splitlines()] == [
        "from .kinds.greeting import GreetingController",
        "    manager.add(GreetingController())",
    ]
    assert "    return command.run(Settings, build, name = 'greeter' )" in lines


def test_formatted_file_of_the_user_stays_formatted(project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 100", "line-length = 40"))
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


def test_project_without_ruff_configuration_is_not_formatted(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert ruff_format._find_ruff(tmp_path) is None
    (tmp_path / "ruff.toml").write_text("")
    assert ruff_format._find_ruff(tmp_path) == str(RUFF)


def write_broken_ruff(project: Path, script: str) -> None:
    file = project / ".venv/bin/ruff"
    file.parent.mkdir(parents=True)
    file.write_text(script)
    file.chmod(0o755)


@pytest.mark.parametrize(
    "script",
    [
        "#!/not/there\n",
        "not a program",
        "#!/bin/sh\nexec sleep 60\n",
        "#!/bin/sh\nexit 2\n",
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\nprintf '\\377'\n",
    ],
    ids=[
        "missing interpreter",
        "not a program",
        "hangs",
        "fails",
        "prints nothing",
        "prints no text",
    ],
)
def test_if_ruff_fails_make_format_is_suggested(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    monkeypatch.setattr(ruff_format, "_RUFF_TIMEOUT_SECONDS", 0.2)
    write_broken_ruff(project, script)
    assert create_api(project) == 0
    assert "\n  make format\n  make test\n" in capsys.readouterr().out
    assert run_ruff_checks(project, "src", "tests") == ""


def test_configuration_outside_of_the_project_is_left_to_make_format(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.parent / "ruff.toml").write_text("line-length = 80\n")
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace("line-length = 100", 'extend = "../ruff.toml"'))
    assert create_api(project) == 0
    assert "\n  make format\n  make test\n" in capsys.readouterr().out
    assert run_ruff_checks(project, "src", "tests") != ""


def test_invalid_python_cannot_be_formatted(project: Path) -> None:
    with pytest.raises(ruff_format.RuffFailed):
        ruff_format._format_text(str(RUFF), project, "src/greeter/x.py", "def (:\n")
