"""CRDs of other projects: each becomes types, and the types give the same CRD again."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.typegen.crd_modules import render_version
from kubewright.builder.typegen.crd_source import read_crds
from kubewright.yaml_text import parse_documents

from ...support.corpora import find_corpus
from .generated_modules import regenerate, schemas_of

MAX_SECONDS = 2


def find_files() -> list[Path]:
    files = [*find_corpus("crds").rglob("*.yaml"), *find_corpus("controller-tools").rglob("*.yaml")]
    assert len(files) > 50
    return sorted(files)


def test_the_types_give_the_same_crd_again() -> None:
    for file in find_files():
        for crd in parse_documents(file.read_text(), str(file)):
            if crd["apiVersion"] != "apiextensions.k8s.io/v1":
                continue
            regenerated = regenerate(crd)
            assert schemas_of(regenerated) == schemas_of(crd), file
            changes = compare_crds([crd], [regenerated])
            assert [change for change in changes if change.is_breaking()] == [], file


def test_type_checkers_accept_them(tmp_path: Path) -> None:
    seconds = {}
    for file in find_files():
        start = time.process_time()
        for crd in read_crds(file.read_text(), str(file)):
            for version in crd.spec.versions:
                name = f"{file.parent.name}_{file.stem}_{version.name}"
                module = "".join(letter if letter.isalnum() else "_" for letter in name)
                (tmp_path / f"module_{module}.py").write_text(render_version(crd, version))
        seconds[file.name] = time.process_time() - start
    assert max(seconds.values()) <= MAX_SECONDS, seconds
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "."]
    process = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    assert process.stdout.startswith("Success: no issues found"), process.stdout
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", "100"]
    process = subprocess.run([*ruff, "."], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
