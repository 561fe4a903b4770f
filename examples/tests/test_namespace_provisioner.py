from __future__ import annotations

import uuid

import pytest

from examples.namespace_provisioner import Team, TeamController, TeamSpec
from examples.tests.component_runner import RunControllers
from kubewright import Client, Key, Namespace, NotFound, ObjectMeta
from kubewright.api.core_v1 import ResourceQuota
from kubewright.api.rbac_v1 import RoleBinding
from kubewright.testing import eventually


@pytest.fixture
def key(namespace: str) -> Key:
    # Namespaces are shared by all tests.
    return Key(namespace, f"team-{uuid.uuid4().hex[:6]}")


async def exists(client: Client, name: str) -> bool:
    """Whether the namespace exists. Without kube-controller-manager it stays in Terminating."""
    try:
        return (await client.get(Namespace, Key("", name))).metadata.deletionTimestamp is None
    except NotFound:
        return False


async def test_namespaces_follow_the_team(run_controllers: RunControllers, key: Key) -> None:
    dev, prod = f"{key.name}-dev", f"{key.name}-prod"
    async with run_controllers(TeamController(), all_namespaces=True) as client:
        spec = TeamSpec(members=["ann"], environments=["dev", "prod"], pods=5)
        metadata = ObjectMeta(namespace=key.namespace, name=key.name)
        await client.create(Team(metadata=metadata, spec=spec))

        async def is_provisioned() -> bool:
            return (await client.get(Team, key)).status.namespaces == [dev, prod]

        await eventually(is_provisioned)
        quota = await client.get(ResourceQuota, Key(dev, "team"))
        assert quota.spec.hard == {"pods": "5"}
        binding = await client.get(RoleBinding, Key(prod, "team"))
        assert [subject.name for subject in binding.subjects] == ["ann"]

        await client.patch(Team, key, {"spec": {"members": ["ann", "bob"]}})

        async def has_both_members() -> bool:
            return len((await client.get(RoleBinding, Key(prod, "team"))).subjects) == 2

        await eventually(has_both_members)
        await client.delete(RoleBinding, Key(prod, "team"))
        await eventually(has_both_members)

        await client.patch(Team, key, {"spec": {"environments": ["prod"]}})

        async def is_gone(name: str) -> bool:
            return not await exists(client, name)

        await eventually(lambda: is_gone(dev))
        assert await exists(client, prod)
        await client.delete(Team, key)
        await eventually(lambda: is_gone(prod))
