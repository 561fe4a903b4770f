"""`make demo` and `kubectl vsphere`: real processes, and a kubectl that finds the plugin."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tty
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from demo.cleanup import clean_up_abandoned, read_processes
from demo.fixtures import (
    BUSY_GPU,
    CORDONED_GPU,
    DISK_NAME,
    HOSTS,
    IDLE_GPU,
    ORPHANED_DISK_NAME,
    TEMPLATE_NAME,
    WORKER,
)
from kubewright.testing import eventually
from kubewright.testing.controlplane import run_in_new_loop
from support.terminal_emulator import (
    SYNC_BEGIN,
    SYNC_END,
    TerminalEmulator,
    TerminalReader,
    resize_terminal,
)
from vsphere_operators.kubectl.topology_commands import PAGE_VARIABLE

DEMO_FOLDERS = ".testenv/demo"
START_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class DemoProcess:
    """A running demo without a terminal."""

    child: subprocess.Popen[bytes]
    output_file: Path
    folder: Path

    @property
    def output_text(self) -> str:
        return self.output_file.read_text()

    async def wait_for_output(self, text: str) -> None:
        await eventually(
            lambda: text in self.output_text or self.child.poll() is not None,
            within=START_TIMEOUT_SECONDS,
            every=0.1,
        )
        assert text in self.output_text, self.output_text

    def read_environ(self, home: Path) -> dict[str, str]:
        """The variables of its `env` file, as a shell would read them."""
        lines = [
            shlex.split(line.removeprefix("export "))
            for line in (self.folder / "env").read_text().splitlines()
        ]
        variables = dict(line.split("=", 1) for (line,) in lines)
        return {
            **variables,
            "PATH": variables["PATH"].replace("$PATH", os.environ["PATH"]),
            "HOME": str(home),
            # PYTHONPATH decides which checkout is tested.
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }


def start_demo(root: Path, output: Path) -> DemoProcess:
    with output.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "demo", "--calm"],
            cwd=root,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
        )
    return DemoProcess(child, output, root / DEMO_FOLDERS / str(child.pid))


@pytest.fixture(scope="module")
def demo(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, binaries: dict[str, Path]
) -> Iterator[DemoProcess]:
    """One demo for all tests; Ctrl-C at the end removes everything."""
    demo = start_demo(pytestconfig.rootpath, tmp_path_factory.mktemp("demo") / "output")
    try:
        run_in_new_loop(demo.wait_for_output("kubectl vsphere tree"))
        run_in_new_loop(demo.wait_for_output("VmGroup vg-3: phase RUNNING, ready 2/2"))
        yield demo
        children = read_processes(demo.folder)[1:]
        assert len(children) == 4
        assert all(child.is_alive for child in children)
        demo.child.send_signal(signal.SIGINT)
        assert demo.child.wait(60) == 0, demo.output_text
        assert not any(child.is_alive for child in children)
        assert not demo.folder.exists()
    finally:
        demo.child.kill()
        demo.child.wait()


def run_command(
    command: str, environ: Mapping[str, str], *, cwd: Path | None = None, exit_code: int = 0
) -> str:
    """The output of a command, or its errors if it has to fail."""
    done = subprocess.run(
        shlex.split(command), env=environ, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if exit_code == 0 else done.stderr


@pytest.fixture
def shell_environ(demo: DemoProcess, tmp_path: Path) -> dict[str, str]:
    return demo.read_environ(tmp_path)


# The demo. Tests of demos on terminals come first: a demo that only runs costs CPU time, too.


def start_on_terminal(
    root: Path, width: int, height: int, *, term: str = "xterm-256color"
) -> tuple[subprocess.Popen[bytes], TerminalReader]:
    """A demo on a terminal of its own, and the reader of that terminal."""
    near, far = pty.openpty()
    tty.setraw(far)
    resize_terminal(near, width, height)
    environ = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    } | {"TERM": term}
    child = subprocess.Popen(
        [sys.executable, "-m", "demo"], cwd=root, env=environ, stdin=far, stdout=far, stderr=far
    )
    os.close(far)
    return child, TerminalReader(near)


async def test_demo_on_a_terminal_does_not_flicker_and_ends_when_it_is_closed(
    pytestconfig: pytest.Config, binaries: dict[str, Path]
) -> None:
    child, reader = start_on_terminal(pytestconfig.rootpath, 80, 24)
    folder, screen = pytestconfig.rootpath / DEMO_FOLDERS / str(child.pid), TerminalEmulator(80, 24)
    try:
        await eventually(
            lambda: reader.data.count(SYNC_END.encode()) >= 10 or child.poll() is not None,
            within=START_TIMEOUT_SECONDS,
        )
        text = reader.data.decode(errors="replace")
        for frame in text[text.index(SYNC_BEGIN) : text.rindex(SYNC_END)].split(SYNC_END):
            screen.show_frame(frame + SYNC_END)
        assert screen.lines[-1].startswith("kubectl get hi,vi,fcd,di,ci,gpu,vg;")
        assert (
            'Template "doesNotExist" not found in /DC0. Create it there, or change spec.template.'
            in " ".join(" ".join(screen.lines).split())
        )
        children = read_processes(folder)[1:]
        assert len(children) == 4
        # A terminal that is closed sends SIGHUP to its programs.
        reader.close()
        child.send_signal(signal.SIGHUP)
        await eventually(lambda: child.poll() is not None, within=60)
        assert not any(child.is_alive for child in children)
        assert not folder.exists()
    finally:
        child.kill()
        child.wait()


class TerminalScreen:
    """What a demo on a terminal shows; every frame is checked for flicker."""

    def __init__(self, reader: TerminalReader, width: int, height: int, shown: int = 0) -> None:
        """`shown` is the number of bytes that were for another size."""
        self._reader, self._terminal, self._shown = reader, TerminalEmulator(width, height), shown

    def read_lines(self) -> list[str]:
        text = self._reader.data[self._shown :].decode(errors="replace")
        complete = text[: text.rfind(SYNC_END) + len(SYNC_END)] if SYNC_END in text else ""
        for frame in complete.split(SYNC_END)[:-1]:
            self._terminal.show_frame(frame[frame.index(SYNC_BEGIN) :] + SYNC_END)
        self._shown += len(complete.encode())
        return self._terminal.lines

    async def wait_for(self, text: str, within: float = 60.0) -> list[str]:
        """Waits until the screen contains a text, which may be wrapped."""
        await eventually(
            lambda: text in " ".join(" ".join(self.read_lines()).split()), within=within, every=0.2
        )
        return self.read_lines()


async def test_demo_survives_a_small_terminal_and_a_dead_and_a_suspended_manager(
    pytestconfig: pytest.Config, binaries: dict[str, Path]
) -> None:
    child, reader = start_on_terminal(pytestconfig.rootpath, 60, 15)
    folder = pytestconfig.rootpath / DEMO_FOLDERS / str(child.pid)
    try:
        screen = TerminalScreen(reader, 60, 15)
        for title in ("HOSTINFO", "GPUINFO", "VMGROUP", "MYCUSTOMRESOURCE"):
            lines = await screen.wait_for(title, START_TIMEOUT_SECONDS)
            assert lines[0].startswith("Demo with a simulated vCenter. Ctrl-C exits. Tables ")
            assert lines[-1].startswith("kubectl get")
        await screen.wait_for("Staged by a script at")
        manager = read_processes(folder)[-1]
        os.kill(manager.pid, signal.SIGKILL)
        await screen.wait_for("The manager was killed by SIGKILL at")
        await screen.wait_for("Restart 1 was at")
        assert child.poll() is None
        restarted = read_processes(folder)[-1]
        assert restarted.is_alive
        assert restarted != manager
        await eventually(
            lambda: count_starts(folder) == 2 and "Starting workers" in read_new_log(folder),
            within=60,
        )
        # The notice ends with a response: until the first one the demo waits longer for the next.
        await eventually(
            lambda: "Restart 1 was at" not in " ".join(screen.read_lines()), within=120, every=0.2
        )
        os.kill(restarted.pid, signal.SIGSTOP)
        await screen.wait_for("The manager has not responded since")
        os.kill(restarted.pid, signal.SIGCONT)
        await eventually(
            lambda: "has not responded" not in " ".join(screen.read_lines()), within=60, every=0.2
        )
        resize_terminal(reader.fd, 200, 50)
        # The terminal is not the controlling one of the demo, so the kernel sends no signal.
        child.send_signal(signal.SIGWINCH)
        screen = TerminalScreen(reader, 200, 50, shown=len(reader.data))
        lines = await screen.wait_for("MYCUSTOMRESOURCE")
        assert "Tables" not in lines[0]
        child.send_signal(signal.SIGINT)
        await eventually(lambda: child.poll() is not None, within=60)
        assert child.returncode == 0
        assert b"Traceback" not in reader.data
        assert not folder.exists()
    finally:
        child.kill()
        child.wait()
        reader.close()


START_LINE = "waiting for the leader lease"


def count_starts(folder: Path) -> int:
    return (folder / "manager.log").read_text().count(START_LINE)


def read_new_log(folder: Path) -> str:
    """The log of the manager since its last start."""
    return (folder / "manager.log").read_text().rpartition(START_LINE)[2]


async def test_demo_on_a_dumb_terminal_prints_plain_lines(
    pytestconfig: pytest.Config, binaries: dict[str, Path]
) -> None:
    child, reader = start_on_terminal(pytestconfig.rootpath, 80, 24, term="dumb")
    try:
        await eventually(
            lambda: b"Staged by a script at" in reader.data, within=START_TIMEOUT_SECONDS, every=0.2
        )
        assert b"A script moves VMs, loads hosts and acts as users" in reader.data
        assert b"\x1b" not in reader.data
        child.send_signal(signal.SIGINT)
        await eventually(lambda: child.poll() is not None, within=60)
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()
        reader.close()


async def test_demo_ends_by_ctrl_c_while_it_starts(
    pytestconfig: pytest.Config, tmp_path: Path, binaries: dict[str, Path]
) -> None:
    starting = start_demo(pytestconfig.rootpath, tmp_path / "output")
    try:
        await eventually(starting.folder.exists, within=60, every=0.02)
        starting.child.send_signal(signal.SIGINT)
        await eventually(lambda: starting.child.poll() is not None, within=60)
    finally:
        starting.child.kill()
        starting.child.wait()
    assert starting.child.returncode == 0
    assert "Traceback" not in starting.output_text
    assert "Stopping all processes..." in starting.output_text
    assert not starting.folder.exists()


# From here on in addition to a demo that already runs.


def test_demo_without_a_terminal_prints_plain_lines(demo: DemoProcess) -> None:
    assert "\x1b" not in demo.output_text
    assert f"In another shell here:  . {DEMO_FOLDERS}/{demo.child.pid}/env" in demo.output_text
    assert re.search(
        r"\d\d:\d\d:\d\d HostInfo hostinfo-host-e: host esxi-dell-e.rainpole.com, free mhz \d+/\d+",
        demo.output_text,
    )


async def test_once_gives_every_sample_its_expected_status(
    demo: DemoProcess, pytestconfig: pytest.Config
) -> None:
    program = (sys.executable, "-m", "demo", "--once")
    child = await asyncio.create_subprocess_exec(
        *program, cwd=pytestconfig.rootpath, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(child.communicate(), 300)
    text = output.decode()
    assert child.returncode == 0, text
    assert (
        "16 of 16 samples have the expected status (vg-2 is expected to be in phase ERROR)." in text
    )
    assert re.search(r"^vg-2 +ERROR +0/2 +doesNotExist +Template", text, re.MULTILINE)
    assert re.search(rf"^gpu2 +250 +8760 +1500 +\S+ +{BUSY_GPU.name}$", text, re.MULTILINE)
    assert re.search(rf"^gpu1 +100 +160 +400 +\S+ +{IDLE_GPU.name}$", text, re.MULTILINE)
    assert demo.child.poll() is None
    assert not (pytestconfig.rootpath / DEMO_FOLDERS / str(child.pid)).exists()


async def test_killed_demo_is_cleaned_up_by_the_next(
    pytestconfig: pytest.Config, tmp_path: Path, demo: DemoProcess
) -> None:
    killed = start_demo(pytestconfig.rootpath, tmp_path / "output")
    try:
        await killed.wait_for_output("CRDs, roles and nodes")
    finally:
        killed.child.kill()
        killed.child.wait()
    children = read_processes(killed.folder)[1:]
    assert len(children) >= 3
    (message,) = await asyncio.to_thread(clean_up_abandoned, pytestconfig.rootpath / DEMO_FOLDERS)
    assert killed.folder.name in message
    assert not killed.folder.exists()
    await eventually(lambda: not any(child.is_alive for child in children))
    assert demo.child.poll() is None


def test_doctor_finds_no_problems_in_the_demo(shell_environ: dict[str, str]) -> None:
    text = run_command(f"{sys.executable} -m vsphere_operators.main doctor", shell_environ)
    assert "The manager will serve metrics on a free port" in text
    assert 'VmGroup      default/vg-2: Template "doesNotExist" not found in /DC0' in text
    assert "No problems, 1 warning." in text


def test_metrics_of_the_inventory_are_at_the_address_of_the_shell(
    shell_environ: dict[str, str],
) -> None:
    with urllib.request.urlopen(shell_environ["DEMO_METRICS_URL"], timeout=10) as response:
        text = response.read().decode()
    assert all(f'host="{host}"' in text for host in HOSTS)


# kubectl vsphere


def test_kubectl_finds_the_plugin(shell_environ: dict[str, str]) -> None:
    assert "kubectl-vsphere" in run_command("kubectl plugin list", shell_environ)


def test_top_hosts(shell_environ: dict[str, str]) -> None:
    head, *rows = run_command("kubectl vsphere top hosts", shell_environ).splitlines()
    assert head.split()[:3] == ["HOST", "CPU", "MHZ"]
    # The variable of the demo names its page, so all hosts are known, not only those of HostInfos.
    assert {row.split()[0] for row in rows} == set(HOSTS)
    from_vcenter = json.loads(
        run_command("kubectl vsphere top hosts --vcenter -o json", shell_environ)
    )
    assert {row["name"] for row in from_vcenter} == set(HOSTS)
    assert all(0 <= row["cpuUsedMHz"] <= row["cpuTotalMHz"] == 9176 for row in from_vcenter)


def test_top_vms(shell_environ: dict[str, str]) -> None:
    rows = {
        row["name"]: row
        for row in yaml.safe_load(run_command("kubectl vsphere top vms -o yaml", shell_environ))
    }
    assert rows[WORKER.name]["host"] == HOSTS[0]
    assert rows[WORKER.name]["node"] == WORKER.name
    assert sum(row.get("group") == "default/vg-3" for row in rows.values()) == 2
    wide = run_command("kubectl vsphere top vms -o wide --vcenter", shell_environ).splitlines()
    assert wide[0].split()[-5:] == ["NODE", "GROUP", "CLUSTER", "DATACENTER", "VCENTER"]
    assert any(CORDONED_GPU.name in line for line in wide)
    assert not any(TEMPLATE_NAME in line for line in wide)


def test_tree(shell_environ: dict[str, str]) -> None:
    text = run_command("kubectl vsphere tree", shell_environ)
    assert re.search(rf"│ +[└├]─ disk {DISK_NAME}  \(1024 MB, LocalDS_0, shop/", text)
    assert re.search(
        rf"disks not attached to a VM shown here\n└─ disk {ORPHANED_DISK_NAME}  \(", text
    )
    without_page = {key: text for key, text in shell_environ.items() if key != PAGE_VARIABLE}
    text = run_command("kubectl vsphere tree", without_page)
    assert f"nodes without a known VM\n└─ node {CORDONED_GPU.name}" in text


def test_what_if(shell_environ: dict[str, str]) -> None:
    text = run_command(f"kubectl vsphere what-if host {HOSTS[1]} -o json", shell_environ)
    answer = json.loads(text)
    affected = {pod["name"]: pod.get("hasReadyReplicaElsewhere") for pod in answer["pods"]}
    assert affected["training-0"] is affected["training-1"] is False
    assert [budget["name"] for budget in answer["podDisruptionBudgets"]] == ["training"]


def test_tree_of_vcenter(shell_environ: dict[str, str]) -> None:
    datacenter, disks = json.loads(
        run_command("kubectl vsphere tree --vcenter -o json", shell_environ)
    )
    assert datacenter["name"] == "DC0"
    assert [disk["name"] for disk in disks["inside"]] == [ORPHANED_DISK_NAME]
    (cluster,) = datacenter["inside"]
    host_of_vm = {
        vm["name"]: host["name"] for host in cluster["inside"] for vm in host.get("inside", ())
    }
    assert {
        worker.name: host_of_vm[worker.name] for worker in (WORKER, IDLE_GPU, BUSY_GPU)
    } == dict(zip((WORKER.name, IDLE_GPU.name, BUSY_GPU.name), HOSTS, strict=True))


def test_describe_group(shell_environ: dict[str, str]) -> None:
    text = run_command("kubectl vsphere describe group vg-3", shell_environ)
    assert "Phase:      RUNNING\n" in text
    assert "Replicas:   2 desired | 2 updated | 2 total | 2 ready\n" in text
    assert len(re.findall(r"^vg-3-replica-[a-z]{8} +Present +poweredOn", text, re.MULTILINE)) == 2
    assert "Reconciled" in text
    assert (
        json.loads(run_command("kubectl vsphere describe group vg-2 -o json", shell_environ))[
            "status"
        ]["phase"]
        == "ERROR"
    )


def test_why_gpu(shell_environ: dict[str, str]) -> None:
    explanation = json.loads(run_command("kubectl vsphere why gpu gpu2 -o json", shell_environ))
    assert explanation["answer"] == BUSY_GPU.name
    assert {result["node"]: result["result"] for result in explanation["verdicts"]} == {
        BUSY_GPU.name: "chosen",
        CORDONED_GPU.name: "Unschedulable",
    }
    assert explanation["uncounted"] == {"TooLittleTime": 1, "GPUMissing": 1}
    full = json.loads(run_command("kubectl vsphere why gpu gpu2 --vcenter -o json", shell_environ))
    assert {result["node"]: result["result"] for result in full["verdicts"]} == {
        BUSY_GPU.name: "chosen",
        CORDONED_GPU.name: "Unschedulable",
        IDLE_GPU.name: "TooLittleTime",
        WORKER.name: "GPUMissing",
    }


def test_errors_are_printed_without_a_traceback(
    shell_environ: dict[str, str], tmp_path: Path
) -> None:
    assert "not found. Check the namespace, or set it with -n." in run_command(
        "kubectl vsphere describe group missing", shell_environ, exit_code=1
    )
    assert "No Kubernetes cluster is configured" in run_command(
        "kubectl vsphere tree", {**shell_environ, "KUBECONFIG": ""}, exit_code=1
    )
    without = {
        name: value for name, value in shell_environ.items() if not name.startswith("GOVMOMI")
    }
    assert "--vcenter: no vCenter is configured. Set GOVMOMI_URL" in run_command(
        "kubectl vsphere tree --vcenter", without, exit_code=1
    )
    assert "certificate is not accepted" in run_command(
        "kubectl vsphere tree --vcenter", {**shell_environ, "VC_CA_FILE": ""}, exit_code=1
    )
    assert "usage: kubectl vsphere" in run_command(
        "kubectl vsphere top cows", shell_environ, exit_code=2
    )
    assert "describe shows one object. Specify its namespace: -n NAMESPACE" in run_command(
        "kubectl vsphere describe group vg-1 -A", shell_environ, exit_code=2
    )
