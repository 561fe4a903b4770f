"""The image without a container engine: the steps of the Dockerfile fill a root folder, and the
manager runs in it as in a Pod.

That an engine builds the Dockerfile is not tested; tests/test_image_files.py checks its text.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from simulator import SimulatedVCenter
from support.info_client import InfoClient, write_credentials
from support.manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE, ManagerProcess

from .container import UNSUPPORTED_EXIT_CODE, Container
from .image_root import build_image_root

NONROOT_UID = 65532
MIB = 1024 * 1024
SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
CA_FILE = "/etc/vc-ca.crt"
HOST_NAME = "esxi-dell-e.rainpole.com"
VCSIM_FLAGS = ("--clusters=1", "--hosts=2", "--vms=2", f"--host-name={HOST_NAME}")
EVALUATE_SCRIPT = "import json, os, ssl, socket, sys; print(json.dumps([{}]))"


@pytest.fixture(scope="module")
def image_root(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A root, built by the first stage of the Dockerfile."""
    folder = tmp_path_factory.mktemp("image")
    yield build_image_root(pytestconfig.rootpath, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def container_manifest(pytestconfig: pytest.Config) -> dict[str, Any]:
    """The container of the manager in the manifest."""
    manifest = yaml.safe_load((pytestconfig.rootpath / "config/manager/manager.yaml").read_text())
    spec: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return {
        **spec["containers"][0],
        "volumes": {volume["name"]: volume for volume in spec["volumes"]},
    }


@pytest.fixture(scope="module")
def image_container(image_root: Path, container_manifest: dict[str, Any]) -> Container:
    """The image with the limits of the manifest: read-only, with /tmp and a memory limit."""
    allowed, limits = (
        container_manifest["securityContext"],
        container_manifest["resources"]["limits"],
    )
    assert allowed["readOnlyRootFilesystem"]
    assert allowed["capabilities"]["drop"] == ["ALL"]
    tmp = parse_mebibytes(container_manifest["volumes"]["tmp"]["emptyDir"]["sizeLimit"])
    plain = Container(
        str(image_root), NONROOT_UID, [], {}, {}, tmp * MIB, parse_mebibytes(limits["memory"]) * MIB
    )
    tried = run_container(replace(plain, command=["/manager", "-help"]))
    if tried.returncode == UNSUPPORTED_EXIT_CODE:
        pytest.skip(f"no container can be imitated here: {tried.stderr.strip()}")
    assert tried.returncode == 0, tried.stderr
    return plain


def parse_mebibytes(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


def run_container(container: Container) -> subprocess.CompletedProcess[str]:
    return subprocess.run(container.command_line(), capture_output=True, text=True, timeout=60)


def evaluate_in_image(container: Container, *expressions: str) -> list[Any]:
    """The values of expressions in the image's interpreter, started as its launcher does."""
    interpreter = (
        Path(container.root, "manager").read_text().splitlines()[0].removeprefix("#!").split()
    )
    done = run_container(
        replace(
            container,
            command=[*interpreter, "-c", EVALUATE_SCRIPT.format(", ".join(expressions))],
        )
    )
    assert done.returncode == 0, done.stderr
    values: list[Any] = json.loads(done.stdout)
    return values


def test_image_has_no_shell_and_no_package_manager(image_root: Path) -> None:
    programs = {
        path.name
        for path in image_root.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o111 and ".so" not in path.name
    }
    assert "manager" in programs
    assert not programs & {
        "sh",
        "bash",
        "dash",
        "busybox",
        "pip",
        "pip3",
        "apt",
        "dpkg",
        "perl",
        "env",
    }
    assert not list(image_root.rglob("pip")), "an installer is in the image"


def test_image_has_no_writable_and_no_setuid_files(image_root: Path) -> None:
    files = [path for path in image_root.rglob("*") if not path.is_symlink()]
    assert len(files) > 1000
    assert [path for path in files if path.stat().st_mode & 0o002] == [image_root / "tmp"]
    assert not [path for path in files if path.is_file() and path.stat().st_mode & 0o6000]


def test_image_has_the_packages_of_the_sbom(image_root: Path, pytestconfig: pytest.Config) -> None:
    bom = json.loads((pytestconfig.rootpath / "hack/image/sbom.cdx.json").read_text())
    listed = {
        (component["name"], component["version"])
        for component in (bom["metadata"]["component"], *bom["components"])
    }
    metadata = [path.read_text() for path in image_root.glob("app/*.dist-info/METADATA")]
    held = {
        (metadata_field("Name", text).lower().replace("_", "-"), metadata_field("Version", text))
        for text in metadata
    }
    assert held <= listed
    here = {
        (component["name"], component["version"])
        for component in bom["components"]
        if "properties" not in component
    }
    assert here <= held


def metadata_field(name: str, metadata: str) -> str:
    match = re.search(rf"^{name}: (.*)$", metadata, re.MULTILINE)
    assert match
    return match[1]


def test_interpreter_of_the_image_trusts_cas_and_resolves_names(
    image_container: Container, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.7 vcenter.example.com\n")
    authorities, address, path = evaluate_in_image(
        replace(image_container, mounts={"/etc/hosts": str(hosts)}),
        "ssl.create_default_context().cert_store_stats()['x509_ca']",
        "socket.gethostbyname('vcenter.example.com')",
        "sys.path",
    )
    assert authorities > 50
    assert address == "127.0.0.7"
    assert all(Path(entry).name not in ("site-packages", "dist-packages") for entry in path)


def test_root_is_read_only_and_tmp_is_not(image_container: Container) -> None:
    expressions = (
        "os.getuid()",
        "os.statvfs('/').f_flag & os.ST_RDONLY",
        "os.statvfs('/tmp').f_flag & os.ST_RDONLY",
    )
    assert evaluate_in_image(image_container, *expressions) == [NONROOT_UID, 1, 0]


def test_memory_limit_is_enforced(image_container: Container) -> None:
    assert evaluate_in_image(image_container, "len(bytearray(100 << 20))") == [100 << 20]
    with pytest.raises(AssertionError, match="MemoryError"):
        evaluate_in_image(image_container, f"len(bytearray({image_container.memory_limit_bytes}))")


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *VCSIM_FLAGS
    )
    try:
        await simulator.start()
        yield simulator
    finally:
        await simulator.stop()


@pytest.fixture
def manager_container(
    image_container: Container,
    container_manifest: dict[str, Any],
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    tmp_path: Path,
) -> Container:
    """The Pod of the manifest: flags with free ports, files of the service account, Secret."""
    tokens = tmp_path / "serviceaccount"
    tokens.mkdir()
    (tokens / "token").write_text(
        installed.create_service_account_token(SYSTEM_NAMESPACE, SERVICE_ACCOUNT)
    )
    (tokens / "namespace").write_text(SYSTEM_NAMESPACE)
    (tokens / "ca.crt").write_bytes(installed.ca.certificate)
    flags = [
        re.sub(r"-bind-address=:\d+$", "-bind-address=127.0.0.1:0", flag)
        for flag in container_manifest["args"]
    ]
    host, _, port = installed.url.removeprefix("https://").partition(":")
    assert [variable["name"] for variable in container_manifest["env"]] == ["POD_NAMESPACE"]
    return replace(
        image_container,
        command=["/manager", *flags, f"-vcenter-ca-file={CA_FILE}"],
        environ={
            "POD_NAMESPACE": SYSTEM_NAMESPACE,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
        },
        mounts={
            SERVICE_ACCOUNT_FOLDER: str(tokens),
            "/etc/vc-creds": str(write_credentials(tmp_path / "vc-creds", simulator)),
            CA_FILE: str(simulator.certificate),
        },
    )


class ImageProcess(ManagerProcess):
    """The manager of the image, in a container."""

    def __init__(self, log: Path, container: Container) -> None:
        Process.__init__(self, "manager", container.command_line(), log)

    @property
    def kernel_status(self) -> dict[str, str]:
        """The fields of /proc/PID/status."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_manager_of_the_image_works_as_in_a_pod(
    manager_container: Container,
    container_manifest: dict[str, Any],
    installed: ControlPlane,
    namespace: str,
    log_file: Path,
) -> None:
    infos = InfoClient(installed, namespace)
    await infos.create("HostInfo", "host", HOST_NAME)
    manager = ImageProcess(log_file, manager_container)
    manager.start()
    try:
        await manager.wait_for_log("serving health probes", within=30)
        await manager.wait_until_ready()
        answer = await infos.wait_for_status("HostInfo", "host", within=40)
        assert answer["totalCPU"] > 0
        kernel = manager.kernel_status
        assert (await manager.http_get("/metrics"))[0] == 401
        assert manager.url("/metrics").startswith("https://")
        await manager.stop(grace_seconds=30)
    finally:
        await manager.kill()
    assert manager.child
    assert manager.child.returncode == 0, manager.log_text
    check_no_privileges(kernel)
    check_memory_peak(kernel, container_manifest["resources"])


def check_no_privileges(kernel: dict[str, str]) -> None:
    assert {kernel[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "0" * 16
    }
    assert kernel["NoNewPrivs"] == "1"


def check_memory_peak(kernel: dict[str, str], resources: dict[str, Any]) -> None:
    """Its peak is at most the memory that it requests."""
    peak_mebibytes = int(kernel["VmHWM"].removesuffix(" kB")) / 1024
    assert (
        peak_mebibytes
        < parse_mebibytes(resources["requests"]["memory"])
        < parse_mebibytes(resources["limits"]["memory"])
    )
