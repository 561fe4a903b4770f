"""CRDs of other projects: each becomes types, and the types give the same CRD again."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.typegen.crd_modules import render_version
from kubewright.builder.typegen.crd_source import Crd, read_crds
from kubewright.crd import build_crds

from ...support.corpora import find_corpus
from .generated_modules import MYPY, load_kinds, schemas_of

MAX_SECONDS = 2


def find_files() -> list[Path]:
    files = [*find_corpus("crds").rglob("*.yaml"), *find_corpus("controller-tools").rglob("*.yaml")]
    assert len(files) > 50
    return sorted(files)


@dataclass(frozen=True)
class ImportedFile:
    path: Path
    crds: list[Crd]
    sources: list[list[str]]
    """The module of each version, by CRD."""
    seconds: float


def import_file(path: Path) -> ImportedFile:
    start = time.process_time()
    crds = read_crds(path.read_text(), str(path))
    sources = [[render_version(crd, version) for version in crd.spec.versions] for crd in crds]
    return ImportedFile(path, crds, sources, time.process_time() - start)


@pytest.fixture(scope="module")
def imported_files() -> list[ImportedFile]:
    return [import_file(path) for path in find_files()]


def test_the_types_give_the_same_crd_again(imported_files: list[ImportedFile]) -> None:
    for file in imported_files:
        for crd, sources in zip(file.crds, file.sources, strict=True):
            # One of v1beta1 was converted.
            if not crd.document:
                continue
            (regenerated,) = build_crds(load_kinds(crd, sources))
            assert schemas_of(regenerated) == schemas_of(crd.document), file.path
            changes = compare_crds([crd.document], [regenerated])
            assert [change for change in changes if change.is_breaking()] == [], file.path


def test_each_file_is_imported_in_time(imported_files: list[ImportedFile]) -> None:
    seconds = {file.path.name: file.seconds for file in imported_files}
    assert max(seconds.values()) <= MAX_SECONDS, seconds


def test_type_checkers_accept_them(imported_files: list[ImportedFile], tmp_path: Path) -> None:
    for file in imported_files:
        for crd, sources in zip(file.crds, file.sources, strict=True):
            for version, source in zip(crd.spec.versions, sources, strict=True):
                name = f"{file.path.parent.name}_{file.path.stem}_{version.name}"
                module = "".join(letter if letter.isalnum() else "_" for letter in name)
                (tmp_path / f"module_{module}.py").write_text(source)
    process = subprocess.run(MYPY, cwd=tmp_path, capture_output=True, text=True)
    assert process.stdout.startswith("Success: no issues found"), process.stdout
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", "100"]
    process = subprocess.run([*ruff, "."], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
