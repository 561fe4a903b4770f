"""Releases: the notes of a tag, the images of an installation, make targets and workflows."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.images import find_images
from hack.release import LastRelease, check_last_release, read_last_release, read_notes

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHANGELOG = """# Changelog

## [Unreleased]

- Next.

## [0.2.0] - 2026-12-01

- Second.

## [0.1.0]

- First.
"""


def test_notes_are_the_section_of_the_version() -> None:
    assert read_notes("v0.2.0", "0.2.0", CHANGELOG) == "- Second."


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v0.3.0", "0.2.0", r"tag is v0\.3\.0, but pyproject\.toml has the version 0\.2\.0"),
        ("", "0.2.0", r"push the tag v0\.2\.0"),
        ("v0.1.0", "0.1.0", r"no date or no text for 0\.1\.0"),
        ("v0.4.0", "0.4.0", r"no section for 0\.4\.0"),
    ],
)
def test_tag_that_does_not_fit_is_rejected(tag: str, version: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        read_notes(tag, version, CHANGELOG)


def test_last_release_is_in_the_repository(tmp_path: Path) -> None:
    last = read_last_release()
    assert re.fullmatch("[0-9a-f]{40}", last.commit)
    project = tomllib.loads((last.extract(tmp_path) / "pyproject.toml").read_text())
    assert project["project"]["version"] == last.version
    assert (tmp_path / "src/vsphere_operators/main.py").is_file()
    assert f"## [{last.version}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_release_keeps_its_section_of_the_changelog(tmp_path: Path) -> None:
    last = read_last_release()
    released = (last.extract(tmp_path) / "CHANGELOG.md").read_text()
    text = (ROOT / "CHANGELOG.md").read_text()
    notes = read_notes(f"v{last.version}", last.version, text)
    assert notes in released


def test_unknown_commit_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"release 0\.0\.1 cannot be read.*git fetch --unshallow"):
        LastRelease("0.0.1", "0" * 40).extract(tmp_path)


def test_release_is_tested_from_the_one_before() -> None:
    check_last_release("0.2.0", "0.1.0", CHANGELOG)
    check_last_release("0.1.0", "", CHANGELOG)
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has 0\.1\.0 before 0\.2\.0"):
        check_last_release("0.2.0", "0.0.9", CHANGELOG)


def test_images_of_all_containers_are_found() -> None:
    pod = {"containers": [{"image": "a:1"}, {"name": "b"}], "initContainers": [{"image": "c:1"}]}
    deployment = {"kind": "Deployment", "spec": {"template": {"spec": pod}}}
    assert find_images([deployment, None, {"spec": {"containers": "text"}}]) == {"a:1", "c:1"}


def test_real_installation_pulls_one_image() -> None:
    image = "registry.example/vsphere-operators:v1"
    output = subprocess.run(
        [sys.executable, "-m", "hack.images", "--image", image],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert output == f"{image}\n"


def dry_run_make(*arguments: str) -> str:
    output = subprocess.run(
        ["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return re.sub(r"\s+", " ", output.replace("\\\n", " "))


def test_image_is_built_for_all_processors_and_signed_by_digest(tmp_path: Path) -> None:
    build = dry_run_make("image-release", "IMG=example.com/a:v1", "CONTAINER_TOOL=engine")
    assert "engine buildx build --platform linux/amd64,linux/arm64 " in build
    assert "--sbom=true --provenance=mode=max" in build
    assert "--push -t example.com/a:v1 ." in build
    digest = f"sha256:{'a' * 64}"
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "image.json").write_text(f'{{\n  "containerimage.digest": "{digest}"\n}}\n')
    command = ["make", "-f", str(ROOT / "Makefile"), "image-sign", "IMG=example.com/a:v1"]
    output = subprocess.run(
        [*command, "COSIGN=echo"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert output.stdout.splitlines()[-1] == f"sign --yes example.com/a:v1@{digest}"


def read_jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


def test_workflows_exist() -> None:
    assert [path.name for path in WORKFLOWS] == ["release.yml", "scorecard.yml", "test.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_runs_make_targets_with_pinned_actions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}, "each job has its own permissions"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in read_jobs(path).values():
        assert job["permissions"]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            elif step["run"] != ".ci/run":
                match = re.match(r"make ([a-z-]+)( |$)", step["run"])
                assert match, step["run"]
                assert match[1] in targets


def test_test_workflow_has_every_supported_python() -> None:
    jobs = read_jobs(ROOT / ".github/workflows/test.yml")
    versions = [
        version
        for job in jobs.values()
        for version in job.get("strategy", {}).get("matrix", {}).get("python", [])
    ]
    assert sorted(versions) == ["3.11", "3.12", "3.13", "3.14"]
    assert jobs["all"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
