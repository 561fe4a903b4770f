"""`delete api` and `delete webhook`: they undo `create`, and keep what the user changed."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from kubewright.builder.scaffold.python_edit import (
    remove_added,
    remove_import,
    remove_kind_argument,
    set_kind_argument,
)
from kubewright.errors import ConfigError

from .builder_commands import (
    commit_project,
    create_api,
    create_webhook,
    read_project_bytes,
    run_git,
    run_manifests,
)


def delete_api(project: Path, *options: str, kind: str = "Greeting") -> int:
    return main(["delete", "api", "--project", str(project), "--kind", kind, *options])


def delete_webhook(project: Path, *options: str, kind: str = "Greeting") -> int:
    return main(["delete", "webhook", "--project", str(project), "--kind", kind, *options])


def commit(project: Path) -> None:
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "test: commit a step")


def list_folders(root: Path) -> set[Path]:
    ignored = {"__pycache__", ".git"}
    return {path for path in root.rglob("*") if path.is_dir() and not ignored & set(path.parts)}


@pytest.fixture
def repository(project: Path) -> Path:
    commit_project(project)
    return project


def test_create_and_delete_of_a_kind_leave_the_same_files(repository: Path) -> None:
    before, folders = read_project_bytes(repository), list_folders(repository)
    assert create_api(repository, "--spec", "env:map[str]", "--short-name", "gr") == 0
    commit(repository)
    assert delete_api(repository) == 0
    assert read_project_bytes(repository) == before
    assert list_folders(repository) == folders


def test_each_step_is_undone(repository: Path) -> None:
    """Two kinds, versions and webhooks, deleted in the reverse order."""
    states: list[dict[str, bytes]] = []

    def create(status: int) -> None:
        assert status == 0
        commit(repository)

    def delete(status: int) -> None:
        assert status == 0
        assert read_project_bytes(repository) == states.pop()
        commit(repository)

    states.append(read_project_bytes(repository))
    create(create_api(repository, kind="House", version="v1alpha1"))
    states.append(read_project_bytes(repository))
    create(create_api(repository))
    states.append(read_project_bytes(repository))
    create(create_api(repository, version="v2"))
    states.append(read_project_bytes(repository))
    create(create_api(repository, "--storage", version="v3"))
    states.append(read_project_bytes(repository))
    create(create_webhook(repository, "--defaulting", "--validation"))
    states.append(read_project_bytes(repository))
    create(create_api(repository, "--controller=false", kind="Street"))

    delete(delete_api(repository, kind="Street"))
    delete(delete_webhook(repository))
    delete(delete_webhook(repository, "--conversion", "--spoke", "v3"))
    delete(delete_api(repository, "--group", "demo", "--version", "v2"))
    delete(delete_api(repository, "--version", "v1"))
    delete(delete_api(repository, kind="House"))


def test_whole_kind_is_deleted_with_all_its_versions_and_its_webhook(greeter: Path) -> None:
    commit_project(greeter)
    assert delete_api(greeter) == 0
    left = {
        path
        for path, content in read_project_bytes(greeter).items()
        if path.startswith(("src/", "tests/", "config/", "pyproject.toml"))
        and b"reeting" in content
    }
    assert left == set()
    kinds = [entry["kind"] for entry in read_resources(greeter)]
    assert kinds == ["House", "Street", "Site", "Pod"]
    assert run_manifests(greeter, "--check", "--allow-breaking").returncode == 0


def read_resources(project: Path) -> list[dict[str, str]]:
    pyproject = tomllib.loads((project / "pyproject.toml").read_text())
    resources: list[dict[str, str]] = pyproject["tool"]["kubewright"]["resources"]
    return resources


def test_next_steps_name_what_stays_in_clusters(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_project(greeter)
    assert delete_api(greeter, "--version", "v2") == 0
    assert "status.storedVersions" in capsys.readouterr().out
    commit(greeter)
    assert delete_api(greeter, kind="House") == 0
    assert "kubectl delete crd houses.demo.example.com" in capsys.readouterr().out


def test_next_steps_do_not_delete_the_crd_of_another_project(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_project(greeter)
    assert delete_api(greeter, kind="Pod") == 0
    output = capsys.readouterr().out
    assert output.endswith("\nDeleted the controller of Pod.\n")
    assert "delete crd" not in output


def test_changed_file_is_deleted_only_with_force(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_project(greeter)
    file = greeter / "src/greeter/kinds/house.py"
    file.write_text(file.read_text() + "\n# by hand\n")
    commit(greeter)
    before = read_project_bytes(greeter)
    assert delete_api(greeter, kind="House") == 1
    error = capsys.readouterr().err
    assert "changed since they were first committed:\n  src/greeter/kinds/house.py\n" in error
    assert "--force" in error
    assert read_project_bytes(greeter) == before
    assert delete_api(greeter, "--force", kind="House") == 0
    assert not file.exists()


def test_uncommitted_changes_are_kept(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_project(greeter)
    file = greeter / "src/greeter/main.py"
    file.write_text(file.read_text() + "\n# by hand\n")
    before = read_project_bytes(greeter)
    assert delete_api(greeter) == 1
    assert "uncommitted changes:\n  src/greeter/main.py" in capsys.readouterr().err
    assert read_project_bytes(greeter) == before
    assert delete_api(greeter, "--force") == 0
    assert file.read_text().endswith("\n# by hand\n")


def test_outside_a_repository_force_is_needed(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(greeter)
    assert delete_api(greeter) == 1
    assert "not in a git repository" in capsys.readouterr().err
    assert read_project_bytes(greeter) == before
    assert delete_api(greeter, "--force") == 0


def test_dry_run_shows_the_diff_and_writes_nothing(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(greeter)
    assert delete_api(greeter, "--dry-run", kind="House") == 0
    output = capsys.readouterr().out
    assert "--- a/src/greeter/kinds/house.py\n+++ /dev/null" in output
    assert "-    manager.add(HouseController())" in output
    assert "--- a/config/crd/bases/demo.example.com_houses.yaml\n+++ /dev/null" in output
    assert read_project_bytes(greeter) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "Other"], 'no kind "Other"; its kinds: Greeting, House, Pod, Site, Street'),
        (["--group", "other"], 'no kind "Greeting"'),
        (["--version", "v9"], "has no version v9; its versions: v1, v2"),
        (["--version", "v1"], "Delete those first, or the whole kind without --version"),
        (["--version", "v1"], "the other versions (v2) are converted to it"),
    ],
)
def test_what_cannot_be_deleted_is_rejected(
    greeter: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    before = read_project_bytes(greeter)
    assert delete_api(greeter, "--force", *options) == 1
    assert message in capsys.readouterr().err
    assert read_project_bytes(greeter) == before


def test_webhook_that_does_not_exist_is_rejected(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert delete_webhook(greeter, "--force", kind="Street") == 1
    assert "Street has no webhook" in capsys.readouterr().err
    assert delete_webhook(greeter, "--spoke", "v2") == 1
    assert "belong together" in capsys.readouterr().err


def test_kind_that_other_code_imports_is_kept(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = greeter / "src/greeter/kinds/greeting.py"
    file.write_text(
        file.read_text().replace("\n\nclass", "\nfrom .house import House\n\n\nclass", 1)
    )
    before = read_project_bytes(greeter)
    assert delete_api(greeter, "--force", kind="House") == 1
    assert "No module named 'greeter.kinds.house'" in capsys.readouterr().err
    assert read_project_bytes(greeter) == before


IMPORTING_FILES = {
    "tests/houses.py": "import os\nfrom greeter.kinds.house import House\n",
    "src/greeter/tools/__init__.py": "from ..kinds import house\n",
    "src/greeter/tools/area.py": "import greeter.kinds.house as h\nfrom . import x\n",
    "src/greeter/kinds/villa.py": "def f():\n    from .house import House\n",
    "src/greeter/tools/street.py": "from ..kinds.street import Street\n",
    "src/greeter/tools/broken.py": "from (\n",
    ".venv/lib/x.py": "from greeter.kinds.house import House\n",
}


def test_imports_of_a_deleted_kind_are_named(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, text in IMPORTING_FILES.items():
        (greeter / path).parent.mkdir(parents=True, exist_ok=True)
        (greeter / path).write_text(text)
    assert delete_api(greeter, "--force", kind="House") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " imports " in line]
    end = "imports greeter.kinds.house, which is deleted: remove the import"
    assert lines == [
        f"src/greeter/kinds/villa.py line 2 {end}",
        f"src/greeter/tools/__init__.py line 1 {end}",
        f"src/greeter/tools/area.py line 1 {end}",
        f"tests/houses.py line 2 {end}",
    ]


def test_own_samples_are_kept_and_named(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = greeter / "config/samples"
    shutil.copy(samples / "demo_v1alpha1_house.yaml", samples / "villa.yaml")
    commit_project(greeter)
    assert delete_api(greeter, kind="House") == 0
    assert "kept config/samples/villa.yaml" in capsys.readouterr().out
    assert (samples / "villa.yaml").exists()


def test_deleted_kind_is_no_optional_editor_any_more(greeter: Path) -> None:
    pyproject = greeter / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text().replace(
            "components = []", 'components = []\noptional_editors = ["House", "Street"]'
        )
    )
    commit_project(greeter)
    assert delete_api(greeter, kind="House") == 0
    assert 'optional_editors = ["Street"]' in pyproject.read_text()


MAIN_SOURCE = """\
from kubewright import Manager

from .kinds.a import AController, Other


def build(manager: Manager, settings: object) -> None:
    manager.add(
        AController(settings)
    )
"""


def test_only_what_create_added_is_removed() -> None:
    text = remove_added(MAIN_SOURCE, "build", "AController", "m")
    assert text.endswith("-> None:\n    pass\n")
    assert "from .kinds.a import Other\n" in remove_import(text, ".kinds.a", "AController", "m")
    assert remove_import(text, ".kinds.b", "BController", "m") == text


def test_other_use_of_the_class_is_an_error() -> None:
    text = MAIN_SOURCE.replace("    manager.add(\n", "    x = AController\n    manager.add(\n")
    with pytest.raises(ConfigError, match="m line 7 uses AController in another way"):
        remove_added(text, "build", "AController", "m")


@pytest.mark.parametrize(
    "declaration",
    ['@kind("\u00e4/v1")', '@kind("\u00e4/v1", scale=x)', '@kind(\n    "a/v1",\n    scale=x,\n)'],
)
def test_argument_of_a_kind_is_removed(declaration: str) -> None:
    text = f"{declaration}\nclass C:\n    pass\n"
    added = set_kind_argument(text, "C", "storage", "False", "m")
    assert remove_kind_argument(added, "C", "storage", "m") == text
    assert remove_kind_argument(text, "C", "storage", "m") == text


def test_argument_on_a_line_of_its_own_is_removed() -> None:
    text = '@kind(\n    "a/v1",\n    storage=False,\n    scale=x,\n)\nclass C:\n    pass\n'
    assert remove_kind_argument(text, "C", "storage", "m") == text.replace(
        "    storage=False,\n", ""
    )
    assert '@kind(\n    "a/v1",\n    storage=False)' in remove_kind_argument(
        text, "C", "scale", "m"
    )
