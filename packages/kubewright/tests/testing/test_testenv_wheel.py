"""The wheel kubewright-testenv: packed, installed by pip, and found."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kubewright.testing.go_module import _digest_sources
from kubewright.testing.testenv_wheel import build_wheel, main

from .conftest import VERSION

BINARIES = ("etcd", "kube-apiserver", "kubectl")
# Prints where the binaries and the program of a Go module are found.
FIND = """
import pathlib, sys
from kubewright.testing.binaries import find_binaries
from kubewright.testing.go_module import build_module
paths = [*find_binaries(build=False).values()]
paths += build_module(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), build=False)
print(*(path.resolve() for path in paths), sep="\\n")
"""


def test_installed_binaries_and_programs_are_found(
    testenv: Path, tool_module: Path, tmp_path: Path
) -> None:
    wheel, site = build_wheel(testenv, tmp_path / "dist"), tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True)
    environ = {"PYTHONPATH": str(site), "HOME": str(tmp_path), "PATH": str(tmp_path / "empty")}
    process = subprocess.run(
        [sys.executable, "-c", FIND, str(tool_module), str(tmp_path / "links")],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    package = site / "kubewright_testenv"
    assert process.stdout.splitlines() == [
        *(str(package / "bin" / name) for name in BINARIES),
        str(package / "modules" / f"tool-{_digest_sources(tool_module, '')[:16]}" / "tool"),
    ]
    assert all(os.access(path, os.X_OK) for path in process.stdout.splitlines())
    assert process.stderr == ""


def test_wheel_has_the_version_of_kubernetes_and_a_complete_record(
    testenv: Path, tmp_path: Path
) -> None:
    wheel = build_wheel(testenv, tmp_path / "dist")
    assert wheel.name.startswith(f"kubewright_testenv-{VERSION}-py3-none-")
    info = f"kubewright_testenv-{VERSION}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert f"\nVersion: {VERSION}\n" in archive.read(f"{info}/METADATA").decode()
        record = {
            name: (digest, size)
            for name, digest, size in csv.reader(
                io.StringIO(archive.read(f"{info}/RECORD").decode())
            )
        }
        assert set(record) == set(archive.namelist())
        assert record.pop(f"{info}/RECORD") == ("", "")
        for name, (digest, size) in record.items():
            content = archive.read(name)
            encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert (digest, size) == (f"sha256={encoded.decode()}", str(len(content)))


def test_same_binaries_give_the_same_wheel(testenv: Path, tmp_path: Path) -> None:
    first, second = (build_wheel(testenv, tmp_path / name) for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_command_prints_the_wheel_or_the_error(
    testenv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(testenv), "--output", str(tmp_path / "dist")]) == 0
    assert capsys.readouterr().out.endswith(".whl (0 MB)\n")
    (testenv / "kube-apiserver").unlink()
    assert main([str(testenv), "--output", str(tmp_path / "other")]) == 1
    assert capsys.readouterr().err.endswith("has no kube-apiserver. Run `make testenv` first.\n")
    assert not (tmp_path / "other").exists()
