"""A recording of a vCenter has no names, and a replay of it has everything that kinds read."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from kubewright.log import Log
from replay import run_replay
from simulator import SimulatedVCenter
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.recording import Recording
from vsphere_operators.doctor.vcenter import check
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vcenters.oneshot import load_inventory, temporary_vcenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.anonymizer import Anonymizer
from vsphere_operators.vsphere.recording import (
    Exchange,
    RecordingSoapClient,
    read_recording,
    write_recording,
)
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import Response, SoapClient
from vsphere_operators.vsphere.vcenter import VCenter
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials
from .conftest import SimulatorFactory

STORED_RECORDINGS = Path(__file__).parents[1] / "recordings"
PASSWORD, USER = "canary-4711", "administrator@corp.example"
HOST_NAME, NODE_NAME, NODE_UUID = (
    "esxi-dell-e.rainpole.com",
    "tkg-worker-1",
    "42030000-0000-4000-8000-0000000000aa",
)
FLAGS = (
    "--clusters=1",
    "--hosts=2",
    "--vms=2",
    f"--host-name={HOST_NAME}",
    f"--node={NODE_NAME}={NODE_UUID}",
    f"--gpu-vm={NODE_NAME}=vgpu",
    f"--gpu-host={HOST_NAME}=shared",
    "--template=golden-image",
    "--folder=vm-operator",
    "--fcds=3",
)
# Every vCenter has these folders, and `vm-operator` is the default of this product.
COMMON_NAMES = {"Datacenters", "vm", "host", "datastore", "network", "Resources", "vm-operator"}


@pytest.fixture
async def furnished_simulator(
    start_simulator: SimulatorFactory,
) -> SimulatedVCenter:
    """A vCenter that has something for each read: tags, attributes, plans, GPUs, disks."""
    simulator = await start_simulator(*FLAGS, user=USER, password=PASSWORD)
    await simulator.set_tag(HOST_NAME, "data-hall", "rack-seventeen")
    await simulator.set_attribute(HOST_NAME, "cost-center", "blue-4711")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await simulator.schedule_maintenance(HOST_NAME, tomorrow, name="firmware-night")
    await simulator.set_vapp("golden-image", hostname="from-the-ova")
    (disk, *_) = await simulator.disks()
    await simulator.attach_disk(disk["id"], NODE_NAME)
    return simulator


def make_config(address: Address) -> VCenterConfig:
    return VCenterConfig("lab", address, username=USER, password=PASSWORD)


async def record(simulator: SimulatedVCenter, folder: Path) -> list[Finding]:
    config = make_config(simulator_address(simulator))
    return [finding async for finding in check(config, (), Installation(), Recording(str(folder)))]


async def load(folder: Path) -> list[Exchange]:
    return await asyncio.to_thread(read_recording, folder)


async def list_secrets(simulator: SimulatedVCenter) -> set[str]:
    """All names, identifiers and addresses of the vCenter, and the account."""
    entities, vms, disks = await asyncio.gather(
        simulator.entities(), simulator.vms(), simulator.disks()
    )
    names = {entity["name"] for entity in entities} - COMMON_NAMES
    secrets = names | {USER, PASSWORD, simulator.instance_uuid, NODE_UUID, *USER.split("@")}
    secrets |= {
        "data-hall",
        "rack-seventeen",
        "cost-center",
        "blue-4711",
        "firmware-night",
        "from-the-ova",
    }
    secrets |= {part for name in names if "." in name for part in name.split(".")} - {"com"}
    for vm in vms:
        secrets |= {str(vm[key]) for key in ("uuid", "instanceUuid", "address") if vm.get(key)}
    for disk in disks:
        secrets |= {disk["name"], disk["id"]}
    return {secret for secret in secrets if secret}


async def test_responses_have_the_names_that_a_recording_must_not_have(
    furnished_simulator: SimulatedVCenter,
) -> None:
    raw: list[Exchange] = []
    config = make_config(simulator_address(furnished_simulator))
    async with temporary_vcenter(
        config, build_soap=partial(RecordingSoapClient, exchanges=raw)
    ) as vcenter:
        await read_parts(vcenter)
    text = b"".join(exchange.request + exchange.response for exchange in raw).decode()
    unused = {secret for secret in await list_secrets(furnished_simulator) if secret not in text}
    # Networks and the vApp are read by other calls.
    assert unused <= {"VM Network", "from-the-ova"}


async def test_recording_has_no_name_address_identifier_or_password(
    furnished_simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    secrets = await list_secrets(furnished_simulator)
    findings = await record(furnished_simulator, tmp_path / "recording")
    assert [finding.level for finding in findings if finding.level != "ok"] == []
    files = sorted((tmp_path / "recording/vcenter-1").iterdir())
    texts = {file.name: file.read_text() for file in files}
    assert len(texts) > 60
    assert len(secrets) > 20
    leaks = {
        (secret, name)
        for name, text in texts.items()
        for secret in secrets
        if secret.lower() in text.lower() or secret in name
    }
    assert leaks == set()
    host, _ = furnished_simulator.address
    assert [name for name, text in texts.items() if host in text] == []
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_session_keys_and_cookies_are_not_recorded(
    furnished_simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    """The keys end with the run, so they are read from what was recorded before replacing."""
    recording = Recording(str(tmp_path / "recording"))
    config = make_config(simulator_address(furnished_simulator))
    async with temporary_vcenter(config, build_soap=recording.build_soap) as vcenter:
        await vcenter.session.login()
        keys = {session["key"] for session in await furnished_simulator.sessions()}
        cookie = vcenter.soap.cookie
        await vcenter.disks.poll()
    await recording.write(logged_in=True, loaded=False)
    text = "".join(file.read_text() for file in (tmp_path / "recording/vcenter-1").iterdir())
    assert keys
    assert cookie
    assert [secret for secret in (*keys, cookie) if secret in text] == []


async def read_parts(vcenter: VCenter) -> None:
    """Everything that kinds read of a vCenter."""
    await vcenter.session.login()
    await load_inventory(vcenter)
    await vcenter.disks.poll()
    await vcenter.tags.poll()
    await vcenter.scheduled_tasks.poll()
    vcenter.passthrough_devices.requested = set(vcenter.inventory.vms)
    vcenter.vm_configs.requested = set(vcenter.inventory.vms)
    await vcenter.passthrough_devices.poll()
    await vcenter.vm_configs.poll()
    for ref in vcenter.inventory.hosts:
        vcenter.assignable_hardware.get(ref)
    await vcenter.assignable_hardware.poll()


async def test_replay_has_everything_that_kinds_read(
    furnished_simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    await record(furnished_simulator, tmp_path / "recording")
    exchanges = await load(tmp_path / "recording/vcenter-1")
    original_config = make_config(simulator_address(furnished_simulator))
    async with (
        run_replay(exchanges, tmp_path / "certificates") as replay,
        temporary_vcenter(original_config) as original,
        temporary_vcenter(make_config(replay.address)) as replayed,
    ):
        await read_parts(original)
        await read_parts(replayed)
        assert replay.unknown_requests == []
        assert_same_structure(original, replayed)
        # Names are others, but the same ones wherever they occur.
        host = next(host for host in replayed.inventory.hosts.values() if host.graphics)
        assert HOST_NAME not in host.name
        assert host.name.count(".") == HOST_NAME.count(".")
        assert replayed.inventory.find_host(host.name).ref == host.ref
        assert len(replayed.tags.get(host.ref)) == 1
        assert len(replayed.scheduled_tasks.by_host[host.ref]) == 1
        assert len(host.attributes) == 1
        (template,) = [vm for vm in replayed.inventory.vms.values() if vm.is_template]
        assert template.name in replayed.inventory.path(template.ref)
        assert template.name in template.vmx_path
        template_config = await replayed.vm_calls.read_template(clone_of(template.ref), "")
        assert template_config.has_vapp
        assert template_config.disks


def clone_of(template: str) -> CloneSpec:
    return CloneSpec(
        template=template,
        folder="",
        name="",
        resource_pool="",
        cpus=1,
        memory_mb=1,
        instance_uuid="",
        remove_vapp=True,
    )


def assert_same_structure(original: VCenter, replayed: VCenter) -> None:
    """Both have the same objects, numbers and states."""
    for kind in ("hosts", "vms", "datastores", "folders", "resource_pools", "datacenters"):
        counts = [len(getattr(vcenter.inventory, kind)) for vcenter in (original, replayed)]
        assert counts[0] == counts[1] > 0
    for vcenter in (original, replayed):
        assert (vcenter.disks.problem, vcenter.tags.problem) == (None, None)
        assert vcenter.scheduled_tasks.problem == ""
    summaries = [
        (
            sorted(
                (vm.power, vm.cpus, vm.memory_mb, vm.guest_id, vm.hardware_version)
                for vm in vcenter.inventory.vms.values()
            ),
            sorted(
                (host.model, host.version, len(host.graphics))
                for host in vcenter.inventory.hosts.values()
            ),
            sorted(
                (disk.size_mb, disk.provisioning, len(disk.attached_vm_uuids))
                for disk in vcenter.disks.disks.values()
            ),
            sorted(len(devices) for devices in vcenter.passthrough_devices.values.values()),
            sorted(len(config.first_class_disks) for config in vcenter.vm_configs.values.values()),
        )
        for vcenter in (original, replayed)
    ]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    "folder", sorted(STORED_RECORDINGS.glob("*/index.json")), ids=lambda path: path.parent.name
)
async def test_stored_recordings_can_be_read(folder: Path, tmp_path: Path) -> None:
    async with (
        run_replay(await load(folder.parent), tmp_path) as replay,
        temporary_vcenter(make_config(replay.address)) as vcenter,
    ):
        await read_parts(vcenter)
        assert replay.unknown_requests == []
        assert vcenter.inventory.hosts
        assert (vcenter.disks.problem, vcenter.tags.problem) == (None, None)


async def test_replay_accepts_another_kind_of_login(
    simulator: SimulatedVCenter, metrics: RecordingMetrics, log: Log, tmp_path: Path
) -> None:
    """The login by a certificate goes through a tunnel, and is not recorded."""
    raw: list[Exchange] = []
    recorder = RecordingSoapClient(simulator_address(simulator), metrics, raw)
    await recorder.get_service_content()
    await recorder.close()
    async with run_replay(raw, tmp_path) as replay:
        soap = SoapClient(replay.address, metrics)
        session = Session(soap, simulator_credentials(simulator), log)
        await session.login()
        assert (session.logged_in, soap.cookie) == (True, "replay")
        await soap.close()
        assert replay.unknown_requests == []


async def test_path_of_a_reverse_proxy_is_not_recorded(
    metrics: RecordingMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def respond(*arguments: object) -> Response:
        return Response(200, [], b"")

    monkeypatch.setattr(SoapClient, "request", respond)
    raw: list[Exchange] = []
    recorder = RecordingSoapClient(Address("proxy", path="/corp/sdk"), metrics, raw)
    for path in ("/corp/sdk", "/vslm/sdk", "/api/session"):
        await recorder.request("POST", path, b"", {}, 1.0, "Login")
    assert [exchange.path for exchange in raw] == ["/sdk", "/vslm/sdk", "/api/session"]


async def test_request_that_is_not_recorded_is_reported(
    simulator: SimulatedVCenter, log: Log, metrics: RecordingMetrics, tmp_path: Path
) -> None:
    exchanges: list[Exchange] = []
    async with run_replay(exchanges, tmp_path) as replay:
        soap = SoapClient(replay.address, metrics)
        session = Session(soap, simulator_credentials(simulator), log)
        with pytest.raises(Exception, match="The recording has no request RetrieveServiceContent"):
            await session.login()
        await soap.close()
        assert len(replay.unknown_requests) == 1


async def test_several_vcenters_share_replacements(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    recording = Recording(str(tmp_path / "recording"))
    address = simulator_address(simulator)
    for name in ("west", "east"):
        config = VCenterConfig(name, address, username=simulator.user, password=simulator.password)
        findings = [finding async for finding in check(config, (), Installation(), recording)]
        assert "requests and responses are in" in findings[-1].message
    west = await load(tmp_path / "recording/vcenter-1")
    east = await load(tmp_path / "recording/vcenter-2")
    loads = [
        next(item.response for item in exchanges if item.method == "RetrieveServiceContent")
        for exchanges in (west, east)
    ]
    assert loads[0] == loads[1]


def test_folder_with_files_is_not_used(tmp_path: Path) -> None:
    assert Recording(str(tmp_path)).check_folder() is None
    assert Recording(str(tmp_path / "new")).check_folder() is None
    (tmp_path / "file").write_text("x")
    finding = Recording(str(tmp_path)).check_folder()
    assert finding is not None
    assert finding.level == "problem"
    assert "is not an empty directory, so nothing is recorded" in finding.message


async def test_folder_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    finding = await Recording(str(tmp_path / "file/below")).write(logged_in=True, loaded=True)
    assert finding.level == "problem"
    assert "cannot be written" in finding.message


def test_other_folders_and_formats_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a recording of `manager doctor -record`"):
        read_recording(tmp_path)
    (tmp_path / "index.json").write_text('{"format": 2, "exchanges": []}')
    with pytest.raises(ValueError, match="record again with this version"):
        read_recording(tmp_path)
    entry = {"method": "x", "verb": "POST", "path": "/sdk", "status": 200}
    for name in ("../secret", "/etc/hostname"):
        index = {"format": 1, "exchanges": [{**entry, "response": name}]}
        (tmp_path / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="which is not in it"):
            read_recording(tmp_path)
    for name in ("00001-x-response.xml", ".."):
        index = {"format": 1, "exchanges": [{**entry, "response": name}]}
        (tmp_path / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="is not complete"):
            read_recording(tmp_path)
    write_recording(tmp_path / "empty", [], Anonymizer())
    assert read_recording(tmp_path / "empty") == []
