"""Releases: the notes of a tag, the images of an installation, make targets and workflows."""

from __future__ import annotations

import os
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
from kubewright.version import OLDEST_KUBERNETES

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/vsphere-operators"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
COMMIT = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m"
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


@pytest.fixture
def last() -> LastRelease:
    release = read_last_release()
    if release.is_cut_off():
        pytest.skip(f"a shallow clone without the commit {release.commit}")
    return release


def test_last_release_is_in_the_repository(last: LastRelease, tmp_path: Path) -> None:
    assert re.fullmatch("[0-9a-f]{40}", last.commit)
    project = tomllib.loads((last.extract(tmp_path) / "pyproject.toml").read_text())
    assert project["project"]["version"] == last.version
    assert (tmp_path / "src/vsphere_operators/main.py").is_file()
    assert f"## [{last.version}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_release_keeps_its_section_of_the_changelog(last: LastRelease, tmp_path: Path) -> None:
    released = (last.extract(tmp_path) / "CHANGELOG.md").read_text()
    text = (ROOT / "CHANGELOG.md").read_text()
    notes = read_notes(f"v{last.version}", last.version, text)
    assert notes in released


def test_only_a_shallow_clone_may_lack_the_last_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("init -q source", f"-C source {COMMIT} 1", f"-C source {COMMIT} 2"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    unknown = LastRelease("0.0.1", "0" * 40)
    for name, depth in {"complete": (), "shallow": ("--depth=1",)}.items():
        source, clone = f"file://{tmp_path}/source", tmp_path / name
        subprocess.run(["git", "clone", "-q", *depth, source, str(clone)], check=True)
        monkeypatch.setattr("hack.release._ROOT", clone)
        assert unknown.is_cut_off() == (name == "shallow")


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
    repository = "IMAGE_REPOSITORY=example.com/a"
    build = dry_run_make("image-release", repository, "CONTAINER_TOOL=engine")
    assert "engine buildx build --platform linux/amd64,linux/arm64 " in build
    assert "--sbom=true --provenance=mode=max" in build
    # The tag that the chart uses by default.
    (chart,) = yaml.safe_load_all((CHART / "Chart.yaml").read_text())
    assert f"--push -t example.com/a:{chart['appVersion']} ." in build
    digest = f"sha256:{'a' * 64}"
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "image.json").write_text(f'{{\n  "containerimage.digest": "{digest}"\n}}\n')
    command = ["make", "-f", str(ROOT / "Makefile"), "image-sign", repository, f"CHART={CHART}"]
    output = subprocess.run(
        [*command, "COSIGN=echo"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    version = chart["appVersion"]
    assert output.stdout.splitlines()[-1] == f"sign --yes example.com/a:{version}@{digest}"


# As helm: `push` prints the digest to standard error.
FAKE_HELM = """#!/bin/sh
[ "$1" = push ] || exit 0
[ -z "$FAILS" ] || { echo "Error: no access" >&2; exit 1; }
echo "Pushed: $2 $3" >&2
echo "Digest: sha256:0123" >&2
"""


def test_chart_is_pushed_and_signed_by_digest(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text(FAKE_HELM)
    helm.chmod(0o755)
    (tmp_path / "dist").mkdir()

    # `setup` counts as up to date, because it would create an environment.
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "setup", f"CHART={CHART}"]
    command += ["CHART_REPOSITORY=example.com/charts", f"HELM={helm}", "COSIGN=echo"]

    def run_make(target: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, target],
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )

    (chart,) = yaml.safe_load_all((CHART / "Chart.yaml").read_text())
    package = f"dist/vsphere-operators-{chart['version']}.tgz"
    pushed = run_make("chart-release")
    assert f"Pushed: {package} oci://example.com/charts\n" in pushed.stdout, pushed.stderr
    signed = run_make("chart-sign").stdout.splitlines()[-1]
    assert signed == "sign --yes example.com/charts/vsphere-operators@sha256:0123"
    failed = run_make("chart-release", FAILS="1")
    assert failed.returncode
    assert "Error: no access" in failed.stdout


def test_release_signs_what_it_pushes() -> None:
    jobs = read_jobs(ROOT / ".github/workflows/release.yml")
    for name in ("image", "chart"):
        commands = [step["run"].split()[1] for step in jobs[name]["steps"] if "run" in step]
        assert commands == [f"{name}-release", f"{name}-sign"]


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


def test_every_go_module_and_lock_is_updated() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    patterns = [
        pattern
        for update in updates
        if update["package-ecosystem"] == "gomod"
        for pattern in update["directories"]
    ]
    files = [set(ROOT.glob(f"{pattern.lstrip('/')}/go.mod")) for pattern in patterns]
    assert all(files), "a pattern matches no module"
    tracked = subprocess.run(
        ["git", "ls-files", "go.mod", "**/go.mod"], cwd=ROOT, check=True, capture_output=True
    )
    names = tracked.stdout.decode().split()
    assert {ROOT / name for name in names} <= set[Path]().union(*files)


def test_test_workflow_runs_on_the_oldest_kubernetes() -> None:
    jobs = read_jobs(ROOT / ".github/workflows/test.yml")
    commands = [step["run"] for step in jobs["oldest"]["steps"] if "run" in step]
    (expected,) = commands
    assert f" KUBERNETES={OLDEST_KUBERNETES} " in expected


def test_test_workflow_has_every_supported_python() -> None:
    jobs = read_jobs(ROOT / ".github/workflows/test.yml")
    versions = [
        version
        for job in jobs.values()
        for version in job.get("strategy", {}).get("matrix", {}).get("python", [])
    ]
    assert sorted(versions) == ["3.11", "3.12", "3.13", "3.14"]
    assert jobs["all"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
