"""Files of the user that cannot be read: the error names the file, the cause and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubewright.builder.changeset import read_text, read_text_if_exists
from kubewright.builder.cli import main
from kubewright.builder.compat.baseline import read_baseline
from kubewright.errors import ConfigError

from .builder_commands import create_api, read_project_bytes


def append_latin1(path: Path) -> None:
    path.write_bytes(path.read_bytes() + "# Gr\u00fc\u00dfe\n".encode("latin-1"))


def replace_with_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def delete_file(path: Path) -> None:
    path.unlink()


def write_invalid_yaml(path: Path) -> None:
    path.write_text("spec: [")


MAIN, HUB, SAMPLE = (
    "src/greeter/main.py",
    "src/greeter/kinds/greeting.py",
    "config/samples/demo_v1_greeting.yaml",
)
DAMAGED_FILES: list[tuple[str, Callable[[Path], None], str]] = [
    (MAIN, append_latin1, "save it as UTF-8"),
    (MAIN, replace_with_folder, "is a directory, but must be a file; move it away"),
    (MAIN, delete_file, "which does not exist"),
    (HUB, append_latin1, "save it as UTF-8"),
    (HUB, replace_with_folder, "is a directory, but must be a file; move it away"),
    (HUB, delete_file, "does not exist; restore it"),
    (SAMPLE, append_latin1, "save it as UTF-8"),
    (SAMPLE, replace_with_folder, "is a directory, but must be a file; move it away"),
    (SAMPLE, write_invalid_yaml, "is not valid YAML"),
    ("pyproject.toml", append_latin1, "can't decode"),
    ("pyproject.toml", replace_with_folder, "Is a directory"),
    ("pyproject.toml", delete_file, "kubewright init"),
]


@pytest.mark.parametrize(
    ("path", "damage", "message"),
    DAMAGED_FILES,
    ids=lambda value: getattr(value, "__name__", value),
)
def test_create_api_names_the_file_that_it_cannot_read(
    greeter: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    damage(greeter / path)
    before = read_project_bytes(greeter)
    assert create_api(greeter, version="v3") == 1
    error = capsys.readouterr().err
    assert path in error
    assert message in error
    assert "Traceback" not in error
    assert read_project_bytes(greeter) == before


def test_sample_that_is_not_an_object_gives_an_empty_spec(greeter: Path) -> None:
    (greeter / SAMPLE).write_text("- a list\n")
    assert create_api(greeter, "--dry-run", version="v3") == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (append_latin1, "save it as UTF-8"),
        (replace_with_folder, "is a directory"),
        (write_invalid_yaml, "is not valid YAML"),
    ],
)
def test_unreadable_crd_on_disk_is_named(
    greeter: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(greeter / "config/crd/bases/demo.example.com_houses.yaml")
    with pytest.raises(ConfigError, match=rf"demo\.example\.com_houses\.yaml .*{message}"):
        read_baseline(greeter, "HEAD", [], fall_back_to_disk=True)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, r"cannot be read: permission denied; .*chmod u\+r"),
        (errno.EIO, "cannot be read: Input/output"),
    ],
)
def test_system_error_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def fail_to_read(path: Path, encoding: str) -> str:
        raise OSError(
            number, "Input/output error" if number == errno.EIO else "Permission denied", str(path)
        )

    monkeypatch.setattr(Path, "read_text", fail_to_read)
    with pytest.raises(ConfigError, match=message):
        read_text_if_exists(tmp_path / "main.py")


def test_file_below_a_file_and_missing_file(tmp_path: Path) -> None:
    (tmp_path / "kinds").write_text("")
    with pytest.raises(
        ConfigError, match="a parent directory of it is a file; move that file away"
    ):
        read_text_if_exists(tmp_path / "kinds/greeting.py")
    assert read_text_if_exists(tmp_path / "none.py") is None
    with pytest.raises(ConfigError, match=r"none\.py does not exist; restore it"):
        read_text(tmp_path / "none.py")


def test_lock_file_of_an_editor_is_ignored(project: Path) -> None:
    (project / "src/greeter/.#main.py").symlink_to("ann@host.4711:1700000000")
    assert create_api(project, "--dry-run") == 0


def test_file_that_cannot_be_copied_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(project / "src/greeter/pipe")
    assert create_api(project, "--dry-run") == 1
    error = capsys.readouterr().err
    assert f"{project}/src/greeter/pipe cannot be read: " in error
    assert "nothing was written" in error


@pytest.mark.parametrize("output", ["../../out.md", "../fresh/folder/out.md"])
def test_output_outside_of_the_project(tmp_path: Path, greeter: Path, output: str) -> None:
    inner = greeter.rename(tmp_path / "inner")
    deep = tmp_path / "deep"
    deep.mkdir()
    root = inner.rename(deep / "greeter")
    for _ in range(2):
        assert main(["docs", "--project", str(root), "--output", output]) == 0
        assert "Greeting" in (root / output).resolve().read_text()
        (root / output).resolve().write_text("stale")
    assert not (root / "out.md").exists()
