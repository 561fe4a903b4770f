"""Count the source files that one event enters, by tracing a real manager.

    python hack/walks.py                      # all walks, under two minutes
    python hack/walks.py host-edit clone      # only these
    python hack/walks.py --json --root /path/of/a/worktree

It starts etcd, kube-apiserver and vcsim (the simulated vCenter) from .testenv/bin, and the
`manager` command of pyproject.toml in a child process with a profile hook. The walks:

    host-edit     spec.hostname of a HostInfo is patched -> its status patch is answered
    host-change   an ESXi host enters or leaves maintenance mode -> the status patch of its HostInfo
                  is answered
    scale-up      spec.replicas of a VmGroup is patched from 1 to 2 -> the status patch that says
                  RUNNING with two ready replicas is answered
    gpu           a GPUInfo is created -> its status patch is answered
    clone         no walk: how deep in the code the CloneVM_Task call of scale-up is sent

What is a file?  A file below src/vsphere_operators or packages/kubewright/src/kubewright, except
    kubewright/testing. It is counted when one of its functions is entered. Importing it does not
    count, so a package's __init__ counts only when a function in it is called.

What is entered?  The unit of the trace is a step: one run of one callback of the event loop, that
    is a task from one await to the next, a timer, or the arrival of data; or one call of a
    function of ours in a thread. A step has a label (the coroutine of its task, else its first
    function of ours) and the functions that it enters. A coroutine that continues after an await
    is entered again, as are the coroutines that await it.

What is the walk?  All steps that begin between the trigger and the sending of the status patch,
    and after that the steps of the task that sent it, up to the one that reads the answer; except
    those of the background. While the answer is awaited, other tasks are left out: whether the
    watch brings our own status patch before the answer differs from run to run. Each walk runs
    REPEATS times. A file counts when it is entered in more than half of them; the others are
    listed apart.

What is the background?  Before the first trigger the manager is left alone for IDLE_SECONDS, with
    a HostInfo and a VmGroup in place. That is longer than one WaitForUpdatesEx of an idle
    inventory (15 s). A later step counts as background when its label occurred in that time and
    it enters no function that was not entered under this label. So a poll of credentials or a
    renewal of the lease is left out. The watch of the inventory is left out when nothing changed,
    and counted when it brings a change. If a controller reconciles in that time, the measurement
    fails.

What else is in the cluster?  A HostInfo of a standalone host, on which no VM runs, and a VmGroup,
    so that no walk wakes the object of another. The Nodes are created only before the walk of
    GPUInfo: where there are Nodes, every VM that a VmGroup makes is also compared with them.

How does the child know the answer?  It logs every request that aiohttp sends, and when the
    headers of the answer have come. The answer to a status patch is one packet, so the step that
    receives the headers also reads and decodes the body.

How deep is the clone?  When the request with the CloneVM_Task call is sent, the Python stack
    holds the whole chain of awaits. Counted are the frames of ours below
    VmGroupController.reconcile, without that one. `frames` ends with the function that names the
    method of the vSphere API (CloneVM_Task or Clone). `frames_to_wire` goes on through the SOAP
    and HTTP transport to the last frame of ours, the one that calls aiohttp. `files` and
    `files_to_wire` are the distinct files of those frames, without the file of reconcile unless a
    deeper frame is in it as well.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import ctypes
import functools
import importlib
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TextIO
from urllib.error import HTTPError

TRACE_MANAGER = "trace-manager"
"""First argument of the child: root, file of the trace and the flags of the manager follow."""
WALKS = ("host-edit", "host-change", "scale-up", "gpu", "clone")
OURS = ("src/vsphere_operators/", "packages/kubewright/src/kubewright/")
NOT_OURS = "packages/kubewright/src/kubewright/testing/"
RECONCILE = "VmGroupController.reconcile"
CLONE_METHODS = {"CloneVM_Task", "Clone"}

# The longest pause after work is 5 s (the vCenter side reads disks, tags and devices that often).
SETTLE_SECONDS = 8.0
IDLE_SECONDS = 20.0
BETWEEN_SECONDS = 3.0
REPEATS = 3
ANSWER_WITHIN_SECONDS = 40.0

SYSTEM, ACCOUNT = "vsphere-operators-system", "controller-manager"
TOPOLOGY = "/apis/topology.corinternal.com/v1/namespaces/default"
GROUPS = "/apis/vm.codeconnect.vmworld.com/v1alpha1/namespaces/default/vmgroups"
TEMPLATE = "vm-operator-template"
NODES = {f"worker-{n}": f"42030000-0000-4000-8000-00000000000{n}" for n in range(1, 5)}
VCSIM_FLAGS = (
    "--clusters=1",
    "--hosts=3",
    "--standalone-hosts=3",
    "--vms=0",
    f"--template={TEMPLATE}",
    "--folder=vm-operator",
    "--gpu-vm=worker-3=vgpu",
    "--gpu-vm=worker-4=passthrough",
    *(f"--node={name}={uuid}" for name, uuid in NODES.items()),
)


# The child: the manager with a profile hook


@dataclass
class Step:
    """The functions of ours that one callback of the event loop enters."""

    began: float
    label: str = ""
    task: int = 0
    functions: dict[str, None] = field(default_factory=dict)


class Tracer:
    """Writes one JSON line per step, per answered request and per clone that is sent."""

    def __init__(self, root: Path, out: TextIO) -> None:
        self.root, self.out = root, out
        self._names: dict[CodeType, str] = {}
        self._steps = threading.local()
        self._lock = threading.Lock()

    def install(self) -> None:
        """Trace this thread, all that it starts, and the requests of aiohttp."""
        self._wrap_callbacks()
        self._wrap_requests()
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def name_of(self, code: CodeType) -> str:
        """`path:function` of a function of ours, "" for all other code."""
        name = self._names.get(code)
        if name is None:
            name = self._names[code] = self._read_name(code)
        return name

    def _read_name(self, code: CodeType) -> str:
        if code.co_name == "<module>" or not code.co_filename.startswith(f"{self.root}/"):
            return ""
        path = code.co_filename.removeprefix(f"{self.root}/")
        ours = path.startswith(OURS) and not path.startswith(NOT_OURS)
        return f"{path}:{code.co_qualname}" if ours else ""

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not (name := self.name_of(frame.f_code)):
            if event == "return":
                self._end_thread_step(frame)
            return
        step: Step | None = getattr(self._steps, "step", None)
        if step is None:
            # No callback of the loop is running: the start of the process, or a worker thread.
            step = self._steps.step = Step(time.monotonic(), f"thread {name}")
            self._steps.outermost = frame
        if not step.label:
            task = running_task()
            step.task = id(task) if task else 0
            step.label = label_of(task) if task else f"callback {name}"
        step.functions[name] = None

    def _end_thread_step(self, frame: FrameType) -> None:
        if getattr(self._steps, "outermost", None) is frame:
            self._write_step(self._steps.step)
            self._steps.step = self._steps.outermost = None

    def _write_step(self, step: Step) -> None:
        entry = {"began": step.began, "label": step.label, "task": step.task}
        self._write(step={**entry, "functions": [*step.functions]})

    def _write(self, **entry: object) -> None:
        with self._lock:
            self.out.write(json.dumps(entry) + "\n")
            self.out.flush()

    def _wrap_callbacks(self) -> None:
        # The one place where steps begin; typed as Any, since methods are replaced.
        handle_type: Any = asyncio.Handle
        run = handle_type._run

        @functools.wraps(run)
        def traced_run(handle: asyncio.Handle) -> None:
            before = getattr(self._steps, "step", None)
            step = self._steps.step = Step(time.monotonic())
            try:
                run(handle)
            finally:
                self._steps.step = before
                if step.functions:
                    self._write_step(step)

        handle_type._run = traced_run

    def _wrap_requests(self) -> None:
        import aiohttp

        session_type: Any = aiohttp.ClientSession
        request = session_type._request

        @functools.wraps(request)
        async def traced_request(session: Any, method: str, url: Any, **options: Any) -> Any:
            body = options.get("data")
            content = body if isinstance(body, bytes) else str(body or "").encode()
            # `<CloneVM_Task ` opens the body of the call; a task that is read has it as a value.
            if b"<CloneVM_Task " in content:
                self._write(clone=self._stack())
            sent = time.monotonic()
            response = await request(session, method, url, **options)
            path = getattr(url, "path", str(url))
            self._write(
                answer={
                    "sent": sent,
                    "at": time.monotonic(),
                    "task": id(running_task()),
                    "method": method,
                    "path": path,
                    "status": response.status,
                    "body": content.decode(errors="replace") if "/status" in path else "",
                }
            )
            return response

        session_type._request = traced_request

    def _stack(self) -> list[dict[str, object]]:
        """The frames of ours, the outermost first, and whether each names the clone method."""
        frames: list[dict[str, object]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if name := self.name_of(code):
                texts = [const for const in code.co_consts if isinstance(const, str)]
                names_clone = not CLONE_METHODS.isdisjoint([*code.co_names, *texts])
                frames.append({"function": name, "names_clone": names_clone})
            frame = frame.f_back
        return frames[::-1]


def running_task() -> asyncio.Task[Any] | None:
    """The task that runs now in this thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def label_of(task: asyncio.Task[Any]) -> str:
    """The name of the coroutine of a task."""
    return f"task {getattr(task.get_coro(), '__qualname__', '')}"


def run_traced_manager(root: Path, out: Path, flags: Sequence[str]) -> int:
    """Run the `manager` command of the project in this process, with the hook installed."""
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["manager"].partition(":")
    # Imports are not traced, and with the hook they would take longer.
    main: Callable[[], int] = getattr(importlib.import_module(module), function)
    sys.argv = ["manager", *flags]
    with out.open("w") as lines:
        Tracer(root, lines).install()
        try:
            return main()
        finally:
            sys.setprofile(None)


# The parent: the cluster, the vCenter, the triggers


class Api:
    """The API server, called as administrator."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        self.authority: str = cluster["certificate-authority-data"]
        pair = folder / "admin.pem"
        keys = ("client-certificate-data", "client-key-data")
        pair.write_bytes(b"\n".join(base64.b64decode(user[key]) for key in keys))
        self._tls = ssl.create_default_context(cadata=base64.b64decode(self.authority).decode())
        self._tls.load_cert_chain(pair)

    def call(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call; a PATCH is a merge patch."""
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._tls) as response:
                return json.load(response)
        except HTTPError as error:
            raise SystemExit(f"{verb} {path}: {error.code} {error.read().decode()}") from None

    def write_kubeconfig(self, path: Path, namespace: str, account: str) -> Path:
        """A kubeconfig with a token of this service account."""
        token_path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.call("POST", token_path, {"spec": {"expirationSeconds": 3600}})
        cluster = {"server": self.url, "certificate-authority-data": self.authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": answer["status"]["token"]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path


class Simulator:
    """vcsim, and its control endpoint."""

    def __init__(self, ready: Mapping[str, str]) -> None:
        self.url, self.certificate = ready["url"], ready["certificate"]
        self.control = ready["control"]

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A change where there is a body, else a question."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.control + path, data)) as response:
            return json.load(response)

    def empty_hosts(self) -> list[str]:
        """Hosts on which no VM of a VmGroup or of a Node is placed."""
        entities = self.call("/entities")
        kinds = {entity["path"]: entity["type"] for entity in entities}
        standalone = [
            entity["name"]
            for entity in entities
            if entity["type"] == "HostSystem"
            and kinds.get(entity["path"].rpartition("/")[0]) != "ClusterComputeResource"
        ]
        # The template is on the first host, and so are its clones.
        return standalone[1:]


def end_with_parent() -> None:
    """Let the kernel end this process with its parent: a killed run leaves nothing behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


@contextmanager
def child(
    command: Sequence[str], log: Path, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process with its log in a file, ended afterwards."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=dict(environ), preexec_fn=end_with_parent
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def control_plane(root: Path, folder: Path) -> Iterator[Api]:
    """An etcd and a kube-apiserver with our CRDs, roles and service account."""
    from kubewright.testing.controlplane import ControlPlane

    programs = ("etcd", "kube-apiserver", "kubectl")
    binaries = {name: root / ".testenv/bin" / name for name in programs}
    with asyncio.Runner() as runner:
        plane = ControlPlane(binaries)
        runner.run(plane.__aenter__())
        try:
            kubeconfig = plane.write_kubeconfig(folder / "admin.kubeconfig")
            api = Api(kubeconfig, folder)
            kubectl = [str(binaries["kubectl"]), f"--kubeconfig={kubeconfig}"]
            cache = f"--cache-dir={folder / 'kubectl'}"
            for part in ("crd", "rbac"):
                apply = [*kubectl, cache, "apply", "-k", str(root / "config" / part)]
                subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
            wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]
            subprocess.run([*kubectl, cache, *wait], check=True, stdout=subprocess.DEVNULL)
            yield api
        finally:
            runner.run(plane.__aexit__(None, None, None))


@contextmanager
def simulator(root: Path, folder: Path) -> Iterator[Simulator]:
    """A vCenter with what all walks need."""
    folder.mkdir()
    log = folder / "vcsim.log"
    command = [str(root / ".testenv/bin/vcsim"), f"--state={folder}", "--user=user", *VCSIM_FLAGS]
    with child(command, log, {"VCSIM_PASSWORD": "pass"}) as process:
        ready = wait_for(lambda: ready_line(log, process), 30, "vcsim is ready")
        yield Simulator(json.loads(ready))


def ready_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The line with the addresses of vcsim, "" before it is there."""
    if process.poll() is not None:
        raise SystemExit(f"vcsim ended:\n{log.read_text()}")
    lines = log.read_text().splitlines(keepends=True)
    complete = (line for line in lines if line.startswith('{"certificate"') and line.endswith("\n"))
    return next(complete, "")


def wait_for(check: Callable[[], Any], within: float, what: str) -> Any:
    """The first true answer of `check`."""
    deadline = time.monotonic() + within
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {within:g} s: {what}")
        time.sleep(0.05)
    return answer


class Trace:
    """What the child has written so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.steps: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.clones: list[list[dict[str, Any]]] = []

    def refresh(self) -> None:
        """Read the lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as lines:
            lines.seek(self._read)
            new = lines.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            for kind, entries in (
                ("step", self.steps),
                ("answer", self.answers),
                ("clone", self.clones),
            ):
                if kind in entry:
                    entries.append(entry[kind])

    def status_answer(
        self, since: float, plural: str, fits: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """The first answered status patch that fits, with the times of request and answer."""
        self.refresh()
        for answer in self.answers:
            path, fresh = answer["path"], answer["at"] >= since and answer["status"] < 300
            is_status = f"/{plural}/" in path and path.endswith("/status")
            if not fresh or not is_status or answer["method"] != "PATCH":
                continue
            if fits(json.loads(answer["body"]).get("status", {})):
                return answer
        return None

    def background(self, since: float, until: float) -> dict[str, set[str]]:
        """The functions that each label enters in this time."""
        self.refresh()
        functions: dict[str, set[str]] = {}
        for step in self.steps:
            if since <= step["began"] <= until:
                functions.setdefault(step["label"], set()).update(step["functions"])
        for label, entered in functions.items():
            # What a reconcile enters would count as background in every walk.
            if busy := [each for each in entered if each.endswith("Controller.reconcile")]:
                raise SystemExit(
                    f"the manager was not idle before the walks: {label} entered {busy}"
                )
        return functions


@dataclass(frozen=True)
class Walk:
    """One trigger, which gets the number of the repeat, and how its result is recognised."""

    name: str
    trigger: Callable[[int], object]
    plural: str
    is_result: Callable[[dict[str, Any]], bool]
    prepare: Callable[[], object] = lambda: None
    """Runs before the first repeat."""
    undo: Callable[[], object] = lambda: None
    """Runs after each repeat, so that the next one finds the same state."""


def walk_files(
    trace: Trace, background: Mapping[str, set[str]], since: float, answer: Mapping[str, Any]
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The files of a walk in order of first entry with their functions, and its steps."""
    files: dict[str, list[str]] = {}
    steps: list[dict[str, Any]] = []
    for step in trace.steps:
        if not since <= step["began"] <= answer["at"]:
            continue
        if step["began"] > answer["sent"] and step["task"] != answer["task"]:
            continue
        if set(step["functions"]) <= background.get(step["label"], set()):
            continue
        steps.append(step)
        for function in step["functions"]:
            path, _, name = function.partition(":")
            names = files.setdefault(path, [])
            if name not in names:
                names.append(name)
    return files, steps


def clone_depth(frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Frames and files below reconcile, to the function that names the clone and to the wire."""
    names = [frame["function"] for frame in frames]
    top = [n for n, name in enumerate(names) if name.endswith(f":{RECONCILE}")]
    if not top:
        raise SystemExit(f"the clone is not sent in the task of {RECONCILE}, but in: {names}")
    below = frames[top[-1] + 1 :]
    naming = [n for n, frame in enumerate(below) if frame["names_clone"]]
    if not naming:
        raise SystemExit(f"no frame names {' or '.join(sorted(CLONE_METHODS))}: {names}")
    to_wire = [frame["function"] for frame in below]
    to_call = to_wire[: naming[-1] + 1]
    files, files_to_wire = distinct_files(to_call), distinct_files(to_wire)
    return {
        "frames": len(to_call),
        "files": len(files),
        "frames_to_wire": len(to_wire),
        "files_to_wire": len(files_to_wire),
        "stack": to_wire,
        "file_list": files_to_wire,
    }


def distinct_files(functions: Sequence[str]) -> list[str]:
    """The files of functions, each once, in their order."""
    return [*dict.fromkeys(function.partition(":")[0] for function in functions)]


def create_nodes(api: Api) -> None:
    """Four Nodes whose VMs vcsim has, two of them with a GPU."""
    for name, uuid in NODES.items():
        spec = {"providerID": f"vsphere://{uuid}"}
        api.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        api.call("PATCH", f"/api/v1/nodes/{name}/status", ready)
        # The API server taints a new Node as not ready; nothing here would take that off.
        api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    # Until the devices of their VMs have been read, a GPUInfo is told to wait.
    time.sleep(SETTLE_SECONDS)


def create_objects(api: Api, host: str) -> None:
    """What must be there before the first trigger."""
    create(api, f"{TOPOLOGY}/hostinfoes", "HostInfo", "host", {"hostname": host})
    spec = {"cpu": 1, "memory": 1, "replicas": 1, "template": TEMPLATE}
    create(api, GROUPS, "VmGroup", "group", spec)


def create(api: Api, path: str, kind: str, name: str, spec: Mapping[str, Any]) -> None:
    """One object in a collection, whose path has the group and the version."""
    group, version = path.split("/")[2:4]
    meta = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}}
    api.call("POST", path, {**meta, "spec": spec})


def scale(api: Api, replicas: int) -> None:
    """Set spec.replicas of the group."""
    api.call("PATCH", f"{GROUPS}/group", {"spec": {"replicas": replicas}})


def wait_for_group(api: Api, replicas: int) -> None:
    """Return when the group is RUNNING with so many replicas."""

    def is_ready() -> bool:
        group = api.call("GET", f"{GROUPS}/group")
        status = group.get("status", {})
        observed = status.get("observedGeneration") == group["metadata"]["generation"]
        return observed and is_running(status) and len(status.get("replicas", ())) == replicas

    wait_for(is_ready, 60, f"the VmGroup is RUNNING with {replicas} replicas")


def is_running(status: Mapping[str, Any]) -> bool:
    """Whether a status of a VmGroup, or a patch of it, says that all is as desired."""
    return status.get("phase") == "RUNNING"


def walks_of(api: Api, vcenter: Simulator, hosts: Sequence[str]) -> list[Walk]:
    """All walks, in the order in which they run."""

    def edit_host(number: int) -> None:
        spec = {"hostname": hosts[(number + 1) % 2]}
        api.call("PATCH", f"{TOPOLOGY}/hostinfoes/host", {"spec": spec})

    def change_host(number: int) -> None:
        hostname = api.call("GET", f"{TOPOLOGY}/hostinfoes/host")["spec"]["hostname"]
        vcenter.call("/host", {"host": hostname, "maintenance": number % 2 == 0})

    def create_gpu_info(number: int) -> None:
        spec = {"desAccTime": 4, "gpuRequired": True}
        create(api, f"{TOPOLOGY}/gpuinfoes", "GPUInfo", f"gpu-{number}", spec)

    def scale_down() -> None:
        # The patch said RUNNING; this fails unless the group really has both replicas.
        wait_for_group(api, 2)
        time.sleep(BETWEEN_SECONDS)
        scale(api, 1)
        wait_for_group(api, 1)
        time.sleep(BETWEEN_SECONDS)

    return [
        Walk("host-edit", edit_host, "hostinfoes", bool),
        Walk("host-change", change_host, "hostinfoes", bool),
        Walk("scale-up", lambda number: scale(api, 2), "vmgroups", is_running, undo=scale_down),
        Walk("gpu", create_gpu_info, "gpuinfoes", bool, prepare=lambda: create_nodes(api)),
    ]


def measure(root: Path, wanted: Sequence[str], repeats: int, keep: Path | None) -> dict[str, Any]:
    """Start everything, run the walks, and end everything."""
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="walks-")))
        folder.mkdir(parents=True, exist_ok=True)
        api = stack.enter_context(control_plane(root, folder))
        vcenter = stack.enter_context(simulator(root, folder / "vcsim"))
        hosts = vcenter.empty_hosts()
        create_objects(api, hosts[0])
        start_manager(stack, root, folder, api, vcenter)
        trace = Trace(folder / "trace")
        try:
            wait_for_group(api, 1)
            time.sleep(SETTLE_SECONDS)
            idle_from = time.monotonic()
            time.sleep(IDLE_SECONDS)
            background = trace.background(idle_from, time.monotonic())
            results: dict[str, Any] = {}
            for walk in walks_of(api, vcenter, hosts):
                if walk.name in wanted or (walk.name == "scale-up" and "clone" in wanted):
                    clones_before = len(trace.clones)
                    result = run_repeats(walk, repeats, trace, background)
                    if walk.name in wanted:
                        results[walk.name] = result
                    if walk.name == "scale-up" and "clone" in wanted:
                        results["clone"] = clone_depth(trace.clones[clones_before])
        except SystemExit:
            print(tail(folder / "manager.log"), file=sys.stderr)
            raise
        return results


def tail(log: Path, lines: int = 10) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def start_manager(
    stack: ExitStack, root: Path, folder: Path, api: Api, vcenter: Simulator
) -> subprocess.Popen[bytes]:
    """The manager as in config/manager: leader election, service account, credential files."""
    credentials = folder / "vc-creds"
    credentials.mkdir()
    values = {"URL": vcenter.url, "USERNAME": "user", "PASSWORD": "pass"}
    for key, value in values.items():
        (credentials / f"GOVMOMI_{key}").write_text(value)
    flags = [
        f"-kubeconfig={api.write_kubeconfig(folder / 'kubeconfig', SYSTEM, ACCOUNT)}",
        "-metrics-addr=127.0.0.1:0",
        "-health-probe-bind-address=127.0.0.1:0",
        f"-vcenter-credentials={credentials}",
        f"-vcenter-ca-file={vcenter.certificate}",
    ]
    python_path = os.pathsep.join(str(root / part.rstrip("/")) for part in source_folders())
    environ = {"PYTHONPATH": python_path, "HOME": str(folder)}
    script = [sys.executable, str(Path(__file__).resolve()), TRACE_MANAGER]
    command = [*script, str(root), str(folder / "trace"), *flags]
    return stack.enter_context(child(command, folder / "manager.log", environ))


def source_folders() -> list[str]:
    """The folders that PYTHONPATH needs: those in which our packages are."""
    return [str(Path(package).parent) for package in OURS]


def run_repeats(
    walk: Walk, repeats: int, trace: Trace, background: Mapping[str, set[str]]
) -> dict[str, Any]:
    """Run a walk several times, and keep the files that most runs enter."""
    walk.prepare()
    runs = []
    for number in range(repeats):
        runs.append(run_walk(walk, number, trace, background))
        walk.undo()
        time.sleep(BETWEEN_SECONDS)
    entered = [*dict.fromkeys(path for run in runs for path in run["file_list"])]
    counts = {path: sum(path in run["file_list"] for run in runs) for path in entered}
    most = [path for path in entered if counts[path] * 2 > repeats]
    return {
        "files": len(most),
        "files_of_runs": [len(run["file_list"]) for run in runs],
        "file_list": most,
        "in_fewer_runs": [path for path in entered if path not in most],
        "runs": runs,
    }


def run_walk(
    walk: Walk, number: int, trace: Trace, background: Mapping[str, set[str]]
) -> dict[str, Any]:
    """Pull the trigger, wait for the result, and list the files between them."""
    began = time.monotonic()
    walk.trigger(number)
    answer = wait_for(
        lambda: trace.status_answer(began, walk.plural, walk.is_result),
        ANSWER_WITHIN_SECONDS,
        f"the status patch of {walk.name} is answered",
    )
    # The step that receives the answer began before the answer; its line is written after it.
    time.sleep(0.5)
    trace.refresh()
    files, steps = walk_files(trace, background, began, answer)
    seconds = round(answer["at"] - began, 3)
    return {"seconds": seconds, "file_list": [*files], "functions": files, "steps": steps}


def report(results: Mapping[str, Any]) -> str:
    """The results as text."""
    lines: list[str] = []
    for name, result in results.items():
        if name == "clone":
            lines.append(
                f"clone: {result['frames']} frames and {result['files']} files below {RECONCILE}; "
                f"to the wire {result['frames_to_wire']} and {result['files_to_wire']}"
            )
            lines += [f"    {number:3} {frame}" for number, frame in enumerate(result["stack"], 1)]
        else:
            runs = ", ".join(map(str, result["files_of_runs"]))
            lines.append(f"{name}: {result['files']} files (in each run: {runs})")
            lines += [f"    {n:3} {path}" for n, path in enumerate(result["file_list"], 1)]
            lines += [f"      - {path} (in fewer runs)" for path in result["in_fewer_runs"]]
    return "\n".join(lines)


def main() -> int:
    """The command line; the child is started with another one."""
    if sys.argv[1:2] == [TRACE_MANAGER]:
        return run_traced_manager(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    here = Path(__file__).resolve().parents[1]
    default = here if (here / "pyproject.toml").exists() else Path.cwd()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(WALKS)
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"of {names}; default all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--steps", action="store_true", help="print JSON with all steps")
    parser.add_argument("--root", type=Path, default=default, help="the worktree to measure")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each walk")
    parser.add_argument("--keep", type=Path, help="a new folder in which logs and trace stay")
    options = parser.parse_args()
    root = options.root.resolve()
    if unknown := [walk for walk in options.walks if walk not in WALKS]:
        parser.error(f"unknown: {' '.join(unknown)}; the walks are {', '.join(WALKS)}")
    # So that cleanup runs after a signal, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.path[:0] = [str(root / folder) for folder in source_folders()]
    results = measure(root, options.walks or WALKS, options.repeats, options.keep)
    if not options.steps:
        for result in results.values():
            result.pop("runs", None)
    print(json.dumps(results, indent=2) if options.json or options.steps else report(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
