"""Clock skew and required roles: plain calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from kubewright import Controller, Manager
from kubewright.builtin import Node
from kubewright.flags import parse_command_line
from kubewright.kubeconfig import Connection, Identity
from vsphere_operators.build import build
from vsphere_operators.doctor.cluster import (
    _manager_grants,
    _required_grants,
    _webhook_ca_grants,
    check_clock_skew,
    check_version,
)
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.rbac import _access_reviews_for, _binding_command
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.leader_lease import MANAGER_NAME
from vsphere_operators.settings.flags import Settings

from .users import MANAGER_ACCOUNT, USERS

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "level", "message"),
    [
        (0, "ok", "Clock skew 0.0s"),
        (-4, "ok", "Clock skew 4.0s"),
        (6, "warning", "The clock of the API server is 6s ahead of the clock of this machine;"),
        (-200, "warning", "is 3m behind the clock of this machine;"),
        (7200, "problem", "is 2h ahead of"),
    ],
)
def test_clock_skew(seconds: int, level: str, message: str) -> None:
    finding = check_clock_skew(NOW + timedelta(seconds=seconds), NOW, "the API server")
    assert finding.level == level
    assert message in finding.message
    assert bool(finding.fix) == (level != "ok")


@pytest.mark.parametrize(
    ("version", "level", "message"),
    [
        ("v1.36.3", "ok", 'Connected to Kubernetes v1.36.3 as user "admin"'),
        ("v1.33.0-gke.100", "ok", 'Connected to Kubernetes v1.33.0-gke.100 as user "admin"'),
        ("v1.32.9+k3s1", "warning", "older than the supported ones, 1.33 to 1.36; it may work"),
        ("v1.37.0", "warning", "newer than the supported ones, 1.33 to 1.36; it may work"),
        ("v2.0.0", "warning", "newer than the supported ones"),
        ("unknown", "ok", "Connected to Kubernetes unknown"),
    ],
)
def test_version_of_the_api_server(version: str, level: str, message: str) -> None:
    finding = check_version(version, "admin")
    assert finding.level == level
    assert message in finding.message


class NodeWatchingController(Controller[HostInfo]):
    """Reads a kind without a namespace."""

    def __init__(self) -> None:
        self.watches(Node, index_by=lambda node: node.metadata.name)


def test_manager_of_some_namespaces_needs_permissions_only_there() -> None:
    (cluster_wide,) = _manager_grants((), [NodeWatchingController()])
    assert {review.namespace for review in _access_reviews_for(cluster_wide)} == {""}
    *namespaced, without_namespace, events = _manager_grants(("a", "b"), [NodeWatchingController()])
    assert [grant.namespace for grant in namespaced] == ["a", "b"]
    assert {review.resource for review in _access_reviews_for(namespaced[0])} == {
        "events",
        "hostinfoes",
        "hostinfoes/status",
    }
    assert {
        (review.resource, review.namespace) for review in _access_reviews_for(without_namespace)
    } == {("nodes", "")}
    assert sum(
        len(_access_reviews_for(grant)) for grant in (namespaced[0], without_namespace)
    ) == len(_access_reviews_for(cluster_wide))
    assert {
        (review.verb, review.resource, review.namespace) for review in _access_reviews_for(events)
    } == {
        ("create", "events", "default"),
        ("patch", "events", "default"),
    }


def test_fix_for_some_namespaces_does_not_bind_the_cluster_wide_role() -> None:
    namespaced, without_namespace, events = _manager_grants(("a",), [NodeWatchingController()])
    for user in USERS:
        assert " create rolebinding " in _binding_command(user, namespaced, Installation())
        assert " -n a " in _binding_command(user, namespaced, Installation())
        assert "config/components/namespaced/cluster_role.yaml" in _binding_command(
            user, without_namespace, Installation()
        )
        assert " -n default create rolebinding " in _binding_command(user, events, Installation())
        assert "config/components/namespaced/cluster_events.yaml" in _binding_command(
            user, events, Installation()
        )
        for grant in (namespaced, without_namespace, events):
            assert "-k config/rbac" not in _binding_command(user, grant, Installation())


@pytest.mark.parametrize(
    ("flags", "roles"),
    [
        ((), []),
        (("-webhooks",), ["ClusterRole", "Role"]),
        (("-webhooks", "-webhook-cert-dir=x"), []),
    ],
)
def test_webhooks_need_the_roles_of_their_component(flags: Sequence[str], roles: list[str]) -> None:
    settings = parse_command_line(Settings, flags, {})
    manager = Manager(
        Connection(server="https://none.invalid", identity=Identity(), source="a test"),
        settings.to_options(MANAGER_NAME),
    )
    build(manager, settings)
    file = ROOT / "config/components/webhooks/webhook_ca_roles.yaml"
    rules_by_kind = {
        manifest["kind"]: manifest["rules"]
        for manifest in yaml.safe_load_all(file.read_text())
        if "rules" in manifest
    }
    grants = _webhook_ca_grants(manager, "here")
    assert [grant.rules for grant in grants] == [rules_by_kind[kind] for kind in roles]
    assert [grant.namespace for grant in grants] == ["", "here"][: len(roles)]
    assert {_binding_command(MANAGER_ACCOUNT, grant, Installation()) for grant in grants} <= {
        f"kubectl apply --server-side -f {file.relative_to(ROOT)}"
    }


@pytest.mark.parametrize("flags", [(), ("-label-nodes",), ("-label-nodes", "-watch-namespaces=a")])
def test_node_labels_need_the_role_of_their_component(flags: Sequence[str]) -> None:
    settings = parse_command_line(Settings, flags, {})
    manager = Manager(
        Connection(server="https://none.invalid", identity=Identity(), source="a test"),
        settings.to_options(MANAGER_NAME),
    )
    build(manager, settings)
    file = ROOT / "config/components/label-nodes/role.yaml"
    role, _ = yaml.safe_load_all(file.read_text())
    grants = _required_grants(settings, manager, "here")
    own = [grant for grant in grants if grant.role == role["metadata"]["name"]]
    assert [grant.rules for grant in own] == ([role["rules"]] if flags else [])
    for grant in grants:
        if grant not in own:
            assert not any(
                "patch" in rule["verbs"] for rule in grant.rules if rule["resources"] == ["nodes"]
            )
    assert {_binding_command(MANAGER_ACCOUNT, grant, Installation()) for grant in own} <= {
        f"kubectl apply --server-side -f {file.relative_to(ROOT)}"
    }
