"""Which files a command overwrites: none that git could not restore, and none after an error."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kubewright.builder.changeset import ChangeSet
from kubewright.errors import ConfigError

from .builder_commands import (
    commit_project,
    create_api,
    create_webhook,
    read_project_bytes,
    run_git,
    run_manifests,
)

MAIN = "src/greeter/main.py"


def test_committed_project_is_changed_without_a_note(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_project(project)
    assert create_api(project) == 0
    assert "GreetingController" in (project / MAIN).read_text()
    assert capsys.readouterr().err == ""


def test_outside_a_repository_the_change_is_written_with_a_note(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_api(project) == 0
    note = (
        f"kubewright: {project} is not in a git repository: this change cannot be undone with git"
    )
    assert capsys.readouterr().err == f"{note}\n"


def test_without_git_the_change_is_written_with_a_note(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert create_api(project) == 0
    assert "is not in a git repository" in capsys.readouterr().err


def edit_file(project: Path) -> None:
    with (project / MAIN).open("a") as file:
        file.write("# my edit\n")


def stage_edit(project: Path) -> None:
    edit_file(project)
    run_git(project, "add", MAIN)


def untrack_file(project: Path) -> None:
    run_git(project, "rm", "-q", "--cached", MAIN)
    run_git(project, "commit", "-qm", "test: untrack a file")


@pytest.mark.parametrize("make_dirty", [edit_file, stage_edit, untrack_file])
def test_uncommitted_file_is_changed_only_with_force(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    make_dirty: object,
) -> None:
    commit_project(project)
    assert callable(make_dirty)
    make_dirty(project)
    before = read_project_bytes(project)
    assert create_api(project) == 1
    error = capsys.readouterr().err
    assert f"these files have uncommitted changes:\n  {MAIN}\n" in error
    assert "Commit them first" in error
    assert "--force" in error
    assert read_project_bytes(project) == before
    assert create_api(project, "--force") == 0
    assert "GreetingController" in (project / MAIN).read_text()


def test_uncommitted_file_in_a_subfolder_of_the_repository_is_found(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nested = Path(shutil.move(project, project.parent / "repository/operators/greeter"))
    commit_project(project.parent / "repository")
    edit_file(nested)
    assert create_api(nested) == 1
    assert f"\n  {MAIN}\n" in capsys.readouterr().err


def test_uncommitted_changes_in_other_files_do_not_matter(project: Path) -> None:
    commit_project(project)
    (project / "notes.txt").write_text("not committed")
    (project / "README.md").write_text("not committed either")
    assert create_api(project) == 0


def test_uncommitted_generated_files_are_overwritten(project: Path) -> None:
    commit_project(project)
    role = project / "config/rbac/role.yaml"
    role.write_text(role.read_text() + "# edited by hand\n")
    assert run_manifests(project).returncode == 0
    assert "edited by hand" not in role.read_text()


def test_file_without_the_generated_marker_is_not_overwritten(project: Path) -> None:
    commit_project(project)
    (project / "config/rbac/role.yaml").write_text("# written by hand\n")
    process = run_manifests(project)
    assert process.returncode == 1
    assert "config/rbac/role.yaml" in process.stderr
    assert run_manifests(project, "--force").returncode == 0


def test_dry_run_shows_the_change_of_an_uncommitted_file(project: Path) -> None:
    commit_project(project)
    edit_file(project)
    before = read_project_bytes(project)
    assert create_api(project, "--dry-run") == 0
    assert read_project_bytes(project) == before


def test_nothing_is_written_if_config_cannot_be_generated(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_api(project) == 0
    kind = project / "src/greeter/kinds/greeting.py"
    kind.write_text(kind.read_text().replace("async def reconcile", "x = 1 / 0\n\n    async def r"))
    before = read_project_bytes(project)
    assert create_webhook(project, "--defaulting") == 1
    error = capsys.readouterr().err
    assert "nothing was written" in error
    assert "division by zero" in error
    assert read_project_bytes(project) == before


def test_nothing_is_written_if_one_file_is_not_writable(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(project)
    # Not chmod: the user that runs the tests may be root, and may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != project / MAIN)
    assert create_api(project) == 1
    assert f"{project / MAIN} is not writable; nothing was written" in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_binary_file_of_the_user_in_config_is_kept(project: Path) -> None:
    picture = project / "config/overlays/picture.png"
    picture.parent.mkdir()
    picture.write_bytes(b"\xff\xfe")
    assert create_api(project) == 0
    assert picture.read_bytes() == b"\xff\xfe"


def test_file_keeps_its_mode(tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    ChangeSet(tmp_path, {"run": "#!/bin/sh\nexit\n"}).write()
    assert script.stat().st_mode & 0o777 == 0o700


def test_dangling_link_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "b.txt").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"already exist and differ:\n  b\.txt"):
        ChangeSet(tmp_path, {"b.txt": "b"}).check_conflicts()


def test_diff_of_a_removed_file_without_line_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    change = ChangeSet(tmp_path, {"b.txt": "new\n"}, removed=("a.txt",))
    assert change.diff() == (
        "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
        "--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+new\n"
    )
