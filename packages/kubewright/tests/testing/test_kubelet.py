"""The fake kubelet on the fake API server; real/test_controllers.py runs it on a real one."""

from __future__ import annotations

from kubewright.api import core_v1
from kubewright.api.core_v1 import Container, Node, Pod, PodSpec
from kubewright.client import Client
from kubewright.errors import NotFound
from kubewright.kind import Key, ObjectMeta
from kubewright.readiness import Readiness, readiness_of
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.testing.kubelet import (
    RUNNING,
    SUCCEEDED,
    crash_looping,
    fake_kubelet,
    waiting,
)


async def test_pod_is_bound_runs_fails_and_goes() -> None:
    client = Client(FakeApi())
    key = Key("default", "a")

    async def has_phase(phase: str) -> bool:
        return (await client.get(Pod, key)).status.phase == phase

    async def is_gone() -> bool:
        try:
            await client.get(Pod, key)
        except NotFound:
            return True
        return False

    async with fake_kubelet(client) as kubelet:
        assert await client.get(Node, Key("", "fake-node"))
        spec = PodSpec(containers=[Container(name="main", image="web:1")])
        await client.create(Pod(metadata=ObjectMeta(name="a", namespace="default"), spec=spec))
        await eventually(lambda: has_phase("Running"))
        pod = await client.get(Pod, key)
        assert (pod.spec.nodeName, pod.status.podIP) == ("fake-node", "10.244.0.2")
        assert {c.type: c.status for c in pod.status.conditions}["Ready"] == "True"
        await kubelet.update(lambda pod: waiting("ImagePullBackOff"))
        await eventually(lambda: has_phase("Pending"))
        await kubelet.update(lambda pod: SUCCEEDED)
        await eventually(lambda: has_phase("Succeeded"))
        await kubelet.update(lambda pod: RUNNING)
        await eventually(lambda: has_phase("Running"))
        await client.delete(Pod, key)
        await eventually(is_gone)


async def test_readiness_of_a_pod_that_crashes_is_failed() -> None:
    client = Client(FakeApi())
    key = Key("default", "a")

    async def read_readiness() -> Readiness:
        return readiness_of(await client.get(core_v1.Pod, key))

    async def is_ready() -> bool:
        return (await read_readiness()).is_current

    async with fake_kubelet(client) as kubelet:
        spec = core_v1.PodSpec(containers=[core_v1.Container(name="web", image="nginx")])
        metadata = ObjectMeta(name="a", namespace="default")
        await client.create(core_v1.Pod(metadata=metadata, spec=spec))
        await eventually(is_ready)
        await kubelet.update(lambda pod: crash_looping("back-off 10s"))
        assert await read_readiness() == Readiness(
            "Failed", "containers in CrashLoopBackOff: web", "ContainerCrashLooping"
        )
        pod = await client.get(core_v1.Pod, key)
        assert pod.status.phase == "Running"
        await kubelet.update(lambda pod: waiting("ErrImagePull"))
        assert (await read_readiness()).reason == "PodPending"
        await kubelet.update(lambda pod: RUNNING)
        assert await is_ready()
