"""The archive for a mirror: packed, downloaded, and found without Go."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from kubewright.testing.binaries import find_binaries
from kubewright.testing.envtest import INDEX_VARIABLE
from kubewright.testing.go_module import build_module
from kubewright.testing.progress import Progress
from kubewright.testing.testenv_archive import INDEX_NAME, build_archive, main

from .conftest import VERSION


def mirror_environ(output: Path, tmp_path: Path) -> dict[str, str]:
    """Variables of a machine with nothing but the index; an empty PATH has no Go."""
    return {
        "PATH": str(tmp_path / "empty"),
        "HOME": str(tmp_path / "home"),
        INDEX_VARIABLE: (output / INDEX_NAME).as_uri(),
    }


def test_binaries_and_programs_are_downloaded(
    testenv: Path, tool_module: Path, tmp_path: Path, no_installed_package: None
) -> None:
    output, progress = tmp_path / "dist", Progress(io.StringIO())
    build_archive(testenv, ["tool"], output)
    environ = mirror_environ(output, tmp_path)
    paths = find_binaries(environ=environ, progress=progress)
    (tool,) = build_module(tool_module, tmp_path / "links", environ, progress, build=False)
    for name, path in {**paths, "tool": tool}.items():
        assert path.resolve().is_relative_to(tmp_path / "home/.cache/kubewright")
        assert path.read_bytes() == (testenv / name).read_bytes()
        assert path.stat().st_mode & 0o111


def test_program_of_other_sources_is_not_used(
    testenv: Path, tool_module: Path, tmp_path: Path, no_installed_package: None
) -> None:
    output, progress = tmp_path / "dist", Progress(io.StringIO())
    build_archive(testenv, ["tool"], output)
    environ = mirror_environ(output, tmp_path)
    find_binaries(environ=environ, progress=progress)
    (tool_module / "main.go").write_text("package main // changed\n")
    with pytest.raises(ConfigError, match="tool is missing"):
        build_module(tool_module, tmp_path / "links", environ, progress, build=False)


def test_index_keeps_the_archives_of_other_versions(testenv: Path, tmp_path: Path) -> None:
    index = tmp_path / INDEX_NAME
    index.write_text("releases:\n  v1.2.3:\n    other.tar.gz: {hash: ab, selfLink: other}\n")
    file = build_archive(testenv, [], tmp_path)
    first = index.read_text()
    assert "other.tar.gz" in first
    assert f"v{VERSION}:\n    {file.name}:" in first
    with tarfile.open(file) as archive:
        assert len(archive.getnames()) == 3
    build_archive(testenv, [], tmp_path)
    assert index.read_text() == first, "the same binaries must give the same archive"


def test_command_prints_the_archive_or_the_error(
    testenv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "dist"
    assert main([str(testenv), "--program", "tool", "--output", str(output)]) == 0
    assert capsys.readouterr().out.endswith(".tar.gz (0 MB)\n")
    assert main([str(testenv), "--program", "helm", "--output", str(output)]) == 1
    assert capsys.readouterr().err.endswith("has no helm. Run `make testenv` first.\n")
    (output / INDEX_NAME).write_text("releases: 3")
    assert main([str(testenv), "--output", str(output)]) == 1
    assert "is not an index of setup-envtest" in capsys.readouterr().err
    assert not list(output.glob("*.partial"))
