from __future__ import annotations

from datetime import UTC, datetime

import pytest

from examples.backup_scheduler import Backup, BackupController, BackupSpec
from examples.tests.component_runner import RunControllers
from kubewright import Client, Key, ObjectMeta
from kubewright.api.batch_v1 import Job
from kubewright.testing import eventually


@pytest.fixture
def key(namespace: str) -> Key:
    return Key(namespace, "db")


async def create_backup(client: Client, key: Key, *, keep: int = 3) -> None:
    spec = BackupSpec(
        image="postgres",
        command=["pg_dump"],
        credentialsSecret="db",
        intervalSeconds=1,
        keep=keep,
    )
    metadata = ObjectMeta(namespace=key.namespace, name=key.name)
    await client.create(Backup(metadata=metadata, spec=spec))


async def find_running_job(client: Client, key: Key) -> str:
    async def read_name() -> str | None:
        return (await client.get(Backup, key)).status.running

    name = await eventually(read_name)
    assert name is not None
    return name


async def complete_running_job(client: Client, key: Key) -> str:
    """Report that the running Job has succeeded, as its controller would."""
    name = await find_running_job(client, key)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": type, "status": "True", "lastTransitionTime": now}
        for type in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
    await client.patch_status(Job, Key(key.namespace, name), status)
    return name


async def test_one_job_runs_at_a_time_and_the_last_ones_are_kept(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(BackupController()) as client:
        await create_backup(client, key, keep=2)
        names = [await complete_running_job(client, key)]

        async def has_next_job() -> bool:
            return (await client.get(Backup, key)).status.running not in (None, *names)

        for _ in range(3):
            await eventually(has_next_job)
            names.append(await complete_running_job(client, key))

        async def kept_names() -> bool:
            jobs = await client.list(Job, key.namespace)
            # One more may run already.
            return [job.metadata.name for job in jobs][:2] == names[-2:]

        await eventually(kept_names)
        assert (await client.get(Backup, key)).status.lastSuccess is not None
        (job, *_) = await client.list(Job, key.namespace)
        pod = job.spec.template.spec
        assert pod is not None
        assert pod.containers[0].command == ["pg_dump"]


async def test_job_of_an_earlier_manager_is_found(
    run_controllers: RunControllers, key: Key
) -> None:
    async with run_controllers(BackupController()) as client:
        await create_backup(client, key)
        name = await find_running_job(client, key)
    controller = BackupController()
    async with run_controllers(controller) as client:
        backup = await client.get(Backup, key)
        await eventually(lambda: controller.children_of(backup, Job))
        await client.patch(Backup, key, {"spec": {"keep": 1}})

        async def has_seen_the_change() -> bool:
            return (await client.get(Backup, key)).status.observedGeneration == 2

        await eventually(has_seen_the_change)
        assert [job.metadata.name for job in await client.list(Job, key.namespace)] == [name]
