"""`make demo` as its user sees it, and `kubectl vsphere` in it: real processes, a real kubectl that finds the plugin by its name."""

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from demo.leftovers import clean_up_abandoned, read_processes
from demo.scene import BUSY_GPU, CORDONED_GPU, DISK_NAME, HOSTS, IDLE_GPU, TEMPLATE_NAME, WORKER
from kubewright.testing import eventually
from kubewright.testing.controlplane import run_in_new_loop
from terminal import FRAME_BEGINS, FRAME_ENDS, Reader, Terminal, resize

FOLDERS = ".testenv/demo"
STARTS_WITHIN_SECONDS = 120.0


@dataclass(frozen=True)
class Demo:
    """A demo that runs, without a terminal."""

    child: subprocess.Popen[bytes]
    output: Path
    folder: Path

    @property
    def text(self) -> str:
        return self.output.read_text()

    async def shows(self, words: str) -> None:
        await eventually(
            lambda: words in self.text or self.child.poll() is not None,
            within=STARTS_WITHIN_SECONDS,
            every=0.1,
        )
        assert words in self.text, self.text

    def environ(self, home: Path) -> dict[str, str]:
        """What its `env` file sets, as a shell would read it."""
        lines = [
            shlex.split(line.removeprefix("export "))
            for line in (self.folder / "env").read_text().splitlines()
        ]
        given = dict(word.split("=", 1) for (word,) in lines)
        return {
            **given,
            "PATH": given["PATH"].replace("$PATH", os.environ["PATH"]),
            "HOME": str(home),
        }


def started(root: Path, output: Path) -> Demo:
    with output.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "demo", "--calm"],
            cwd=root,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
        )
    return Demo(child, output, root / FOLDERS / str(child.pid))


@pytest.fixture(scope="module")
def demo(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, binaries: dict[str, Path]
) -> Iterator[Demo]:
    """One for all tests; at the end Ctrl-C, and nothing is left."""
    demo = started(pytestconfig.rootpath, tmp_path_factory.mktemp("demo") / "output")
    try:
        run_in_new_loop(demo.shows("kubectl vsphere tree"))
        run_in_new_loop(demo.shows("VmGroup vg-3: phase RUNNING, ready 2/2"))
        yield demo
        children = read_processes(demo.folder)[1:]
        assert len(children) == 4
        assert all(each.is_alive for each in children)
        demo.child.send_signal(signal.SIGINT)
        assert demo.child.wait(60) == 0, demo.text
        assert not any(each.is_alive for each in children)
        assert not demo.folder.exists()
    finally:
        demo.child.kill()
        demo.child.wait()


def run(command: str, environ: Mapping[str, str], *, cwd: Path | None = None, code: int = 0) -> str:
    """What a command prints."""
    done = subprocess.run(
        shlex.split(command), env=environ, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def shell(demo: Demo, tmp_path: Path) -> dict[str, str]:
    return demo.environ(tmp_path)


# The demo


def test_without_a_terminal_it_is_plain_lines(demo: Demo) -> None:
    assert "\x1b" not in demo.text
    assert f"In another shell here:  . {FOLDERS}/{demo.child.pid}/env" in demo.text
    assert re.search(
        r"\d\d:\d\d:\d\d HostInfo hostinfo-host-e: host esxi-dell-e.rainpole.com, free mhz \d+/\d+",
        demo.text,
    )


def on_terminal(root: Path, width: int, height: int) -> tuple[subprocess.Popen[bytes], Reader]:
    """A demo on a terminal of its own, and who reads it."""
    near, far = pty.openpty()
    tty.setraw(far)
    resize(near, width, height)
    environ = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    } | {"TERM": "xterm-256color"}
    child = subprocess.Popen(
        [sys.executable, "-m", "demo"], cwd=root, env=environ, stdin=far, stdout=far, stderr=far
    )
    os.close(far)
    return child, Reader(near)


async def test_on_a_terminal_it_does_not_flicker_and_ends_when_that_is_closed(
    pytestconfig: pytest.Config, demo: Demo
) -> None:
    child, reader = on_terminal(pytestconfig.rootpath, 80, 24)
    folder, screen = pytestconfig.rootpath / FOLDERS / str(child.pid), Terminal(80, 24)
    try:
        await eventually(
            lambda: reader.data.count(FRAME_ENDS.encode()) >= 10 or child.poll() is not None,
            within=STARTS_WITHIN_SECONDS,
        )
        text = reader.data.decode(errors="replace")
        for frame in text[text.index(FRAME_BEGINS) : text.rindex(FRAME_ENDS)].split(FRAME_ENDS):
            screen.feed(frame + FRAME_ENDS)
        assert screen.lines[-1].startswith("kubectl get hi,vi,fcd,gpu,vg -o wide")
        assert (
            'no template "doesNotExist" in /DC0; create it there, or change spec.template'
            in " ".join(" ".join(screen.lines).split())
        )
        children = read_processes(folder)[1:]
        assert len(children) == 4
        # As a terminal does that is closed: nobody is at its other end any more, and its programs get SIGHUP.
        reader.close()
        child.send_signal(signal.SIGHUP)
        await eventually(lambda: child.poll() is not None, within=60)
        assert not any(each.is_alive for each in children)
        assert not folder.exists()
    finally:
        child.kill()
        child.wait()


async def test_once_beside_it_gives_every_sample_its_answer(
    demo: Demo, pytestconfig: pytest.Config
) -> None:
    program = (sys.executable, "-m", "demo", "--once")
    child = await asyncio.create_subprocess_exec(
        *program, cwd=pytestconfig.rootpath, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(child.communicate(), 300)
    text = output.decode()
    assert child.returncode == 0, text
    assert (
        "14 of 14 samples have the answer that they should, vg-2's intended ERROR included." in text
    )
    assert re.search(r"^vg-2 +ERROR +0/2 +doesNotExist +no template", text, re.MULTILINE)
    assert re.search(rf"^gpu2 +250 +8760 +1500 +\S+ +{BUSY_GPU.name}$", text, re.MULTILINE)
    assert re.search(rf"^gpu1 +100 +160 +400 +\S+ +{IDLE_GPU.name}$", text, re.MULTILINE)
    assert demo.child.poll() is None
    assert not (pytestconfig.rootpath / FOLDERS / str(child.pid)).exists()


async def test_a_demo_that_was_killed_is_cleaned_by_the_next(
    pytestconfig: pytest.Config, tmp_path: Path, demo: Demo
) -> None:
    killed = started(pytestconfig.rootpath, tmp_path / "output")
    try:
        await killed.shows("CRDs, roles and nodes")
    finally:
        killed.child.kill()
        killed.child.wait()
    children = read_processes(killed.folder)[1:]
    assert len(children) >= 3
    (said,) = await asyncio.to_thread(clean_up_abandoned, pytestconfig.rootpath / FOLDERS)
    assert killed.folder.name in said
    assert not killed.folder.exists()
    await eventually(lambda: not any(each.is_alive for each in children))
    assert demo.child.poll() is None


def test_the_doctor_is_content_with_it(shell: dict[str, str]) -> None:
    text = run(f"{sys.executable} -m vsphere_operators.main doctor", shell)
    assert "a manager answers at http://127.0.0.1:" in text
    assert 'VmGroup      default/vg-2: no template "doesNotExist" in /DC0' in text
    assert "No problems, 1 warning." in text


# kubectl vsphere


def test_kubectl_finds_the_plugin(shell: dict[str, str]) -> None:
    assert "kubectl-vsphere" in run("kubectl plugin list", shell)


def test_top_hosts(shell: dict[str, str]) -> None:
    head, *rows = run("kubectl vsphere top hosts", shell).splitlines()
    assert head.split()[:3] == ["HOST", "CPU", "MHZ"]
    assert [row.split()[0] for row in rows] == [HOSTS[0]]
    everywhere = json.loads(run("kubectl vsphere top hosts --vcenter -o json", shell))
    assert {row["name"] for row in everywhere} == set(HOSTS)
    assert all(0 <= row["cpuUsedMHz"] <= row["cpuTotalMHz"] == 4588 for row in everywhere)


def test_top_vms(shell: dict[str, str]) -> None:
    rows = {
        row["name"]: row for row in yaml.safe_load(run("kubectl vsphere top vms -o yaml", shell))
    }
    assert rows[WORKER.name]["host"] == HOSTS[0]
    assert rows[WORKER.name]["node"] == WORKER.name
    assert sum(row.get("group") == "default/vg-3" for row in rows.values()) == 2
    wide = run("kubectl vsphere top vms -o wide --vcenter", shell).splitlines()
    assert wide[0].split()[-5:] == ["NODE", "GROUP", "CLUSTER", "DATACENTER", "VCENTER"]
    assert any(CORDONED_GPU.name in line for line in wide)
    assert not any(TEMPLATE_NAME in line for line in wide)


def test_tree(shell: dict[str, str]) -> None:
    told = run("kubectl vsphere tree", shell)
    assert f"│  └─ disk {DISK_NAME}  (1024 MB, LocalDS_0)" in told
    assert f"nodes whose VM nothing here tells\n└─ node {CORDONED_GPU.name}" in told
    (datacenter,) = json.loads(run("kubectl vsphere tree --vcenter -o json", shell))
    assert datacenter["name"] == "DC0"
    (cluster,) = datacenter["inside"]
    machines = {
        vm["name"]: host["name"] for host in cluster["inside"] for vm in host.get("inside", ())
    }
    assert {each.name: machines[each.name] for each in (WORKER, IDLE_GPU, BUSY_GPU)} == dict(
        zip((WORKER.name, IDLE_GPU.name, BUSY_GPU.name), HOSTS, strict=True)
    )


def test_describe_group(shell: dict[str, str]) -> None:
    text = run("kubectl vsphere describe group vg-3", shell)
    assert "Phase:      RUNNING\n" in text
    assert "Replicas:   2 ready, 2 up to date, 2 there, 2 wanted\n" in text
    assert len(re.findall(r"^vg-3-replica-[a-z]{8} +Present +poweredOn", text, re.MULTILINE)) == 2
    assert "Reconciled" in text
    assert (
        json.loads(run("kubectl vsphere describe group vg-2 -o json", shell))["status"]["phase"]
        == "ERROR"
    )


def test_why_gpu(shell: dict[str, str]) -> None:
    told = json.loads(run("kubectl vsphere why gpu gpu2 -o json", shell))
    assert told["answer"] == BUSY_GPU.name
    assert {each["node"]: each["result"] for each in told["verdicts"]} == {
        BUSY_GPU.name: "chosen",
        CORDONED_GPU.name: "Unschedulable",
    }
    assert told["uncounted"] == {"TooLittleTime": 1, "GPUMissing": 1}
    full = json.loads(run("kubectl vsphere why gpu gpu2 --vcenter -o json", shell))
    assert {each["node"]: each["result"] for each in full["verdicts"]} == {
        BUSY_GPU.name: "chosen",
        CORDONED_GPU.name: "Unschedulable",
        IDLE_GPU.name: "TooLittleTime",
        WORKER.name: "GPUMissing",
    }


def test_refusals_are_said_in_words(shell: dict[str, str], tmp_path: Path) -> None:
    assert "not found. Is the namespace right?" in run(
        "kubectl vsphere describe group nobody", shell, code=1
    )
    assert "No Kubernetes cluster is configured" in run(
        "kubectl vsphere tree", {**shell, "KUBECONFIG": ""}, code=1
    )
    without = {name: value for name, value in shell.items() if not name.startswith("GOVMOMI")}
    assert "--vcenter: no vCenter is named. Set GOVMOMI_URL" in run(
        "kubectl vsphere tree --vcenter", without, code=1
    )
    assert "certificate is not accepted" in run(
        "kubectl vsphere tree --vcenter", {**shell, "VC_CA_FILE": ""}, code=1
    )
    assert "usage: kubectl vsphere" in run("kubectl vsphere top cows", shell, code=2)
    assert "describe shows one object. Name its namespace: -n NAMESPACE" in run(
        "kubectl vsphere describe group vg-1 -A", shell, code=2
    )
