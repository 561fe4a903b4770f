"""kubewright and kubewright-api as wheels: two distributions that share one Python package."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """\
from kubewright import ObjectMeta
from kubewright.api.apps_v1 import Deployment, DeploymentSpec
from kubewright.api.core_v1 import PodTemplateSpec
from kubewright.api.meta_v1 import LabelSelector

deployment = Deployment(
    metadata=ObjectMeta(name="web"),
    spec=DeploymentSpec(
        replicas=2, selector=LabelSelector(matchLabels={"app": "web"}), template=PodTemplateSpec()
    ),
)
replicas: int | None = deployment.spec.replicas
print(deployment.encode()["spec"]["replicas"], replicas)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    process = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    packages = [str(ROOT / "packages" / name) for name in ("kubewright", "kubewright-api")]
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, *packages)
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


def test_each_wheel_has_its_own_files(wheels: dict[str, Path]) -> None:
    runtime, api = (
        {name for name in zipfile.ZipFile(wheels[wheel]).namelist() if ".dist-info/" not in name}
        for wheel in ("kubewright", "kubewright_api")
    )
    assert "kubewright/__init__.py" in runtime
    assert not [name for name in runtime if name.startswith("kubewright/api/")]
    assert {"kubewright/api/__init__.py", "kubewright/api/core_v1.py"} <= api
    assert not [name for name in api if not name.startswith("kubewright/api/")]


def test_a_source_distribution_has_no_modules_of_the_other(tmp_path: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path)
    run(*build, cwd=ROOT / "packages/kubewright")
    (archive,) = tmp_path.iterdir()
    names = run("tar", "tzf", archive).splitlines()
    assert any(name.endswith("src/kubewright/kind.py") for name in names)
    assert not [name for name in names if "/kubewright/api/" in name]


def test_both_work_in_an_empty_environment(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment)
    python = environment / "bin/python"
    options = ("--quiet", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, *wheels.values())
    # The dependencies of this environment, without its editable packages: Python reads .pth files
    # only in the folders of the environment itself.
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    site_packages = Path(purelib.strip())
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert run(python, program, cwd=tmp_path) == "2 2\n"
    print_location = "import kubewright.api.core_v1 as module; print(module.__file__)"
    location = run(python, "-c", print_location, cwd=tmp_path)
    assert location.startswith(str(site_packages))
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python))
    # The cache is kept for the dependencies, which are most of what mypy reads.
    cache = ("--cache-dir", ROOT / ".mypy_cache/installed")
    run(*mypy, *cache, "--config-file=", program, cwd=tmp_path)


def test_the_clone_has_both_in_one_package() -> None:
    link = ROOT / "packages/kubewright/src/kubewright/api"
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / "packages/kubewright-api/src/kubewright/api"
