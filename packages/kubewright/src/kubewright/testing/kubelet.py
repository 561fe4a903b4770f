"""A kubelet that runs nothing: it marks Pods as running, so that Deployments become available.

    async with fake_kubelet(client) as kubelet:
        ...                                       # Pods are Running and Ready, those of Jobs end
        await kubelet.update(lambda pod: crash_looping())
        ...                                       # now no Pod is ready, and none becomes ready

It creates one Node, and also does the work of the scheduler: it binds every Pod to its Node. A Pod
that is deleted goes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from ..client import Client
from ..condition import utc_now
from ..errors import ApiError, NotFound
from ..kind import Key, Object, ObjectMeta, Resource, kind
from ..responses import UndecodableObject

_NOT_RUN_AGAIN = ("Never", "OnFailure")
_NODE_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
_RETRY_SECONDS = 0.2


class Container(Struct):
    """The fields of a container that its status repeats."""

    name: str
    image: str = ""


class KubeletPodSpec(Struct):
    """The fields of a Pod that the kubelet reads."""

    nodeName: str = ""
    restartPolicy: str = "Always"
    containers: list[Container] = []


class KubeletPodStatus(Struct):
    phase: str = ""


@kind("v1", name="Pod", plural="pods", external=True)
class KubeletPod(Resource[KubeletPodSpec, KubeletPodStatus]):
    """A Pod, as `pod_state` gets it."""


@kind("v1", name="Node", plural="nodes", namespaced=False, external=True)
class _Node(Object):
    """A Node; its status is written as plain JSON."""


@dataclass(frozen=True)
class PodState:
    """What the kubelet reports of a Pod.

    A reason is that of its waiting or terminated containers. The containers of a Running Pod with
    a reason wait; without one they run and are ready.
    """

    phase: Literal["Pending", "Running", "Succeeded", "Failed"]
    reason: str = ""
    message: str = ""


RUNNING = PodState("Running")
"""All containers run and are ready."""
SUCCEEDED = PodState("Succeeded", "Completed")


def waiting(reason: str, message: str = "") -> PodState:
    """Containers that never started: `ImagePullBackOff`, `CreateContainerConfigError`..."""
    return PodState("Pending", reason, message)


def crash_looping(message: str = "") -> PodState:
    """Containers that started and ended again and again. The phase of their Pod is Running."""
    return PodState("Running", "CrashLoopBackOff", message)


def failed(reason: str = "Error", message: str = "") -> PodState:
    """Containers that ended with an error, and are not started again."""
    return PodState("Failed", reason, message)


def default_pod_state(pod: KubeletPod) -> PodState:
    """The default: a Pod that is not to be run again, as that of a Job, succeeds at once."""
    return SUCCEEDED if pod.spec.restartPolicy in _NOT_RUN_AGAIN else RUNNING


class FakeKubelet:
    """Watches all Pods; `fake_kubelet` runs it."""

    def __init__(
        self,
        client: Client,
        *,
        node_name: str,
        namespace: str,
        delay_seconds: float,
        pod_state: Callable[[KubeletPod], PodState],
    ) -> None:
        self._client, self._node_name, self._namespace = client, node_name, namespace
        self.delay_seconds, self._pod_state = delay_seconds, pod_state
        self._reported: set[str] = set()
        self._addresses = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def _create_node(self) -> None:
        name = self._node_name
        await self._client.create(_Node(metadata=ObjectMeta(name=name)))
        # The API server taints a new Node. Its controller, which does not run, removes the taint.
        await self._client.patch(_Node, Key("", name), {"spec": {"taints": None}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {
            "capacity": _NODE_CAPACITY,
            "allocatable": _NODE_CAPACITY,
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": name}],
        }
        await self._client.patch_status(_Node, Key("", name), status)

    async def _delete_node(self) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(_Node, Key("", self._node_name))

    async def update(self, pod_state: Callable[[KubeletPod], PodState]) -> None:
        """Decide again for every Pod on the Node, and for new ones."""
        self._pod_state = pod_state
        for pod in await self._client.list(KubeletPod, self._namespace):
            if pod.spec.nodeName == self._node_name and pod.metadata.deletionTimestamp is None:
                await self._report(pod)

    async def run(self) -> None:
        """List and watch Pods until cancelled."""
        try:
            while True:
                # A test may stop and restart the API server.
                with contextlib.suppress(ApiError, OSError, TimeoutError):
                    await self._follow_pods()
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_pods(self) -> None:
        version = ""
        async for page in self._client.list_pages(KubeletPod, self._namespace):
            version = page.resource_version
            for item in page.items:
                self._handle(item)
        async for event in self._client.watch(KubeletPod, version, self._namespace):
            if event.type in ("ADDED", "MODIFIED"):
                self._handle(event.object)

    def _handle(self, pod: KubeletPod | UndecodableObject | None) -> None:
        if not isinstance(pod, KubeletPod) or pod.spec.nodeName not in ("", self._node_name):
            return
        if pod.metadata.deletionTimestamp is not None:
            self._start(self._remove(pod))
        elif not pod.spec.nodeName:
            self._start(self._bind(pod))
        elif pod.metadata.uid not in self._reported:
            self._reported.add(pod.metadata.uid)
            self._start(self._report(pod))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, pod: KubeletPod) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node_name},
        }
        # Another event of the same Pod may have led to the same request, or the Pod is gone.
        with contextlib.suppress(ApiError):
            await self._client.create_subresource(KubeletPod, pod.key, "binding", body)

    async def _report(self, pod: KubeletPod) -> None:
        await asyncio.sleep(self.delay_seconds)
        state = self._pod_state(pod)
        self._addresses += 1
        address = f"10.244.{self._addresses // 250}.{self._addresses % 250 + 1}"
        with contextlib.suppress(ApiError):
            await self._client.patch_status(
                KubeletPod, pod.key, build_pod_status(pod, state, address)
            )

    async def _remove(self, pod: KubeletPod) -> None:
        with contextlib.suppress(ApiError):
            await self._client.delete(
                KubeletPod, pod.key, uid=pod.metadata.uid, grace_period_seconds=0
            )


def build_pod_status(pod: KubeletPod, state: PodState, address: str) -> dict[str, Any]:
    """The status that the kubelet writes for a Pod in this state."""
    now = utc_now().isoformat().replace("+00:00", "Z")
    is_waiting = state.phase == "Pending" or (state.phase == "Running" and state.reason != "")
    is_ready = "True" if state.phase == "Running" and not is_waiting else "False"
    conditions = {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": is_ready,
        "Ready": is_ready,
    }
    reason = {"reason": state.reason, "message": state.message}
    if is_waiting:
        container_state: dict[str, Any] = {"waiting": reason}
    elif state.phase == "Running":
        container_state = {"running": {"startedAt": now}}
    else:
        code = 0 if state.phase == "Succeeded" else 1
        container_state = {
            "terminated": {**reason, "exitCode": code, "startedAt": now, "finishedAt": now}
        }
    return {
        "phase": state.phase,
        "startTime": now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "conditions": [
            {"type": type, "status": status, "lastTransitionTime": now}
            for type, status in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": is_ready == "True",
                "started": is_ready == "True",
                "restartCount": 0,
                "state": container_state,
            }
            for container in pod.spec.containers
        ],
    }


@asynccontextmanager
async def fake_kubelet(
    client: Client,
    *,
    node_name: str = "fake-node",
    namespace: str = "",
    delay_seconds: float = 0.0,
    pod_state: Callable[[KubeletPod], PodState] = default_pod_state,
) -> AsyncIterator[FakeKubelet]:
    """Run a kubelet for the Pods of a namespace, or of all; `delay_seconds` is the time a start
    takes.
    """
    kubelet = FakeKubelet(
        client,
        node_name=node_name,
        namespace=namespace,
        delay_seconds=delay_seconds,
        pod_state=pod_state,
    )
    await kubelet._create_node()
    task = asyncio.create_task(kubelet.run())
    try:
        yield kubelet
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await kubelet._delete_node()
