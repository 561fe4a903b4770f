"""A person's file that cannot be read: which it is, what is wrong with it, and what to do; never a traceback, and nothing written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubewright.builder.changeset import read_text, read_text_if_exists
from kubewright.builder.cli import main
from kubewright.builder.compat.baseline import read_crds_on_disk
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
    (MAIN, replace_with_folder, "is a folder where a file has to be; move it away"),
    (MAIN, delete_file, "which is not there"),
    (HUB, append_latin1, "save it as UTF-8"),
    (HUB, replace_with_folder, "is a folder where a file has to be; move it away"),
    (HUB, delete_file, "is not there; bring it back"),
    (SAMPLE, append_latin1, "save it as UTF-8"),
    (SAMPLE, replace_with_folder, "is a folder where a file has to be; move it away"),
    (SAMPLE, write_invalid_yaml, "is no YAML"),
    ("pyproject.toml", append_latin1, "can't decode"),
    ("pyproject.toml", replace_with_folder, "Is a directory"),
    ("pyproject.toml", delete_file, "kubewright init"),
]


@pytest.mark.parametrize(
    ("path", "spoil", "words"), DAMAGED_FILES, ids=lambda value: getattr(value, "__name__", value)
)
def test_another_version_names_the_file_that_it_cannot_read(
    greeter: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    spoil: Callable[[Path], None],
    words: str,
) -> None:
    spoil(greeter / path)
    before = read_project_bytes(greeter)
    assert create_api(greeter, version="v3") == 1
    said = capsys.readouterr().err
    assert path in said
    assert words in said
    assert "Traceback" not in said
    assert read_project_bytes(greeter) == before


def test_a_sample_that_is_no_object_gives_an_empty_spec(greeter: Path) -> None:
    (greeter / SAMPLE).write_text("- a list\n")
    assert create_api(greeter, "--dry-run", version="v3") == 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (append_latin1, "save it as UTF-8"),
        (replace_with_folder, "is a folder"),
        (write_invalid_yaml, "is no YAML"),
    ],
)
def test_a_committed_crd_that_cannot_be_read_is_named(
    greeter: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(greeter / "config/crd/bases/demo.example.com_houses.yaml")
    with pytest.raises(ConfigError, match=rf"demo\.example\.com_houses\.yaml {words}|{words}"):
        read_crds_on_disk(greeter)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, r"cannot be read: you have not the right.*chmod u\+r"),
        (errno.EIO, "cannot be read: Input/output"),
    ],
)
def test_a_file_that_the_system_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refused(path: Path, encoding: str) -> str:
        raise OSError(
            number, "Input/output error" if number == errno.EIO else "Permission denied", str(path)
        )

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(ConfigError, match=words):
        read_text_if_exists(tmp_path / "main.py")


def test_a_file_below_a_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "kinds").write_text("")
    with pytest.raises(ConfigError, match="above it is a file; move that away"):
        read_text_if_exists(tmp_path / "kinds/greeting.py")
    assert read_text_if_exists(tmp_path / "none.py") is None
    with pytest.raises(ConfigError, match=r"none\.py is not there; bring it back"):
        read_text(tmp_path / "none.py")


def test_an_editors_lock_in_the_sources_stops_nothing(project: Path) -> None:
    (project / "src/greeter/.#main.py").symlink_to("ann@host.4711:1700000000")
    assert create_api(project, "--dry-run") == 0


def test_what_cannot_be_copied_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(project / "src/greeter/pipe")
    assert create_api(project, "--dry-run") == 1
    said = capsys.readouterr().err
    assert f"{project}/src/greeter/pipe cannot be read: " in said
    assert "nothing was written" in said


@pytest.mark.parametrize("output", ["../../out.md", "../fresh/folder/out.md"])
def test_a_page_may_go_outside_of_the_project(tmp_path: Path, greeter: Path, output: str) -> None:
    inner = greeter.rename(tmp_path / "inner")
    deep = tmp_path / "deep"
    deep.mkdir()
    root = inner.rename(deep / "greeter")
    for _ in range(2):
        assert main(["docs", "--project", str(root), "--output", output]) == 0
        assert "Greeting" in (root / output).resolve().read_text()
        (root / output).resolve().write_text("stale")
    assert not (root / "out.md").exists()
