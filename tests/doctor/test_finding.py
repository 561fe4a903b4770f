"""What the doctor's checks make of what was read: plain calls."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubewright import Controller, Manager, ObjectMeta
from kubewright.builtin import Lease, LeaseSpec, Node
from kubewright.crd import build_crds
from kubewright.flags import parse_command_line
from kubewright.kubeconfig import Connection, Identity
from kubewright.rbac import build_rule
from vsphere_operators.build import build
from vsphere_operators.doctor.clock import check_clock_skew
from vsphere_operators.doctor.cluster import MANAGER_NAME, manager_grants, webhook_ca_grants
from vsphere_operators.doctor.crd_drift import diff_specs
from vsphere_operators.doctor.finding import Finding, ok, problem, run_check, warning
from vsphere_operators.doctor.lease import check_lease_holder
from vsphere_operators.doctor.metrics_endpoint import address_in_use
from vsphere_operators.doctor.privileges import RequiredPrivileges, check_missing_privileges
from vsphere_operators.doctor.rbac import (
    AccessReview,
    Grant,
    access_reviews_for,
    binding_command,
    denied_findings,
)
from vsphere_operators.doctor.report import TextReport, as_json, summary
from vsphere_operators.doctor.vcenter import renew_credentials_command
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.settings.flags import Settings
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.privileges import Account, EntityRef

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0, "ok", "agree to 0.0 s"),
        (-4, "ok", "agree to 4.0 s"),
        (6, "warning", "is 6 s ahead of this machine's"),
        (-200, "warning", "is 3 min behind this machine's"),
        (7200, "problem", "is 2 h ahead of"),
    ],
)
def test_clocks(seconds: int, level: str, words: str) -> None:
    found = check_clock_skew(NOW + timedelta(seconds=seconds), NOW, "the API server")
    assert found.level == level
    assert words in found.words
    assert bool(found.fix) == (level != "ok")


def installed_crd_spec() -> dict[str, Any]:
    (crd,) = build_crds([HostInfo])
    return {**crd["spec"], "conversion": {"strategy": "None"}}


def test_a_crd_is_the_same_whatever_the_server_adds() -> None:
    (crd,) = build_crds([HostInfo])
    assert diff_specs(crd["spec"], installed_crd_spec()) == []


def test_a_crd_that_lacks_a_field_and_has_another_names_both() -> None:
    (crd,) = build_crds([HostInfo])
    there = installed_crd_spec()
    fields = there["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["host"] = fields.pop("hostname")
    path = "versions.v1.schema.openAPIV3Schema.properties.spec.properties"
    assert diff_specs(crd["spec"], there) == [
        f"{path}.hostname (missing there)",
        f"{path}.host (only there)",
    ]


JSON_VALUES = st.recursive(
    st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON_VALUES), st.dictionaries(st.text(), JSON_VALUES))
def test_values_differ_somewhere_exactly_if_they_are_not_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    other = {
        key: value
        for key, value in other.items()
        if key not in ("conversion", "preserveUnknownFields")
    }
    assert bool(diff_specs(one, other)) == (one != other)


def make_lease(**spec: Any) -> Lease:
    return Lease(metadata=ObjectMeta(namespace="a", name="b"), spec=LeaseSpec(**spec))


def test_the_leader() -> None:
    renewed = {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-11-16T11:59:50.000000Z",
    }
    assert check_lease_holder(make_lease(), NOW) == ok(
        "leader", "the lease a/b is free: the last leader gave it back"
    )
    assert check_lease_holder(make_lease(**renewed), NOW) == ok(
        "leader", '"pod-1" leads, by the lease a/b'
    )
    late = check_lease_holder(make_lease(**renewed), NOW + timedelta(minutes=3))
    assert (late.level, late.words) == (
        "warning",
        '"pod-1" held the lease a/b and last renewed it 3 min ago: nobody leads now',
    )
    assert (
        check_lease_holder(make_lease(**{**renewed, "renewTime": "soon"}), NOW).level == "warning"
    )


ROLE = Grant(role="vsphere-operators-manager-role", rules=[])
BINDINGS = {
    "system:serviceaccount:vsphere-operators-system:controller-manager": "kubectl apply -k config/rbac",
    "system:serviceaccount:a:b": "--clusterrole=vsphere-operators-manager-role --serviceaccount=a:b",
    "ann@example.com": "--clusterrole=vsphere-operators-manager-role --user=ann@example.com",
    "o'hara": """--user='o'"'"'hara'""",
}


@pytest.mark.parametrize(("user", "fix"), BINDINGS.items())
def test_a_fix_binds_the_generated_role_and_never_a_wider_one(user: str, fix: str) -> None:
    command = binding_command(user, ROLE)
    assert command.endswith(fix)
    assert "cluster-admin" not in command
    made = re.search(r"create clusterrolebinding (\S+) ", command)
    assert made is None or re.fullmatch(r"[a-z0-9-]+", made[1])


def test_every_verb_of_every_rule_is_asked_for_and_names_count() -> None:
    rules = [
        build_rule([""], ["nodes"], ["list", "watch"]),
        build_rule(["g.io"], ["things"], ["get"], ("a", "b")),
    ]
    asked = access_reviews_for(Grant(role="r", rules=rules, namespace="ns"))
    assert asked == [
        AccessReview("list", "", "nodes", "ns"),
        AccessReview("watch", "", "nodes", "ns"),
        AccessReview("get", "g.io", "things", "ns", "a"),
        AccessReview("get", "g.io", "things", "ns", "b"),
    ]
    assert asked[2].resource_title == 'things.g.io "a"'


def test_denied_verbs_of_a_resource_are_one_line() -> None:
    denied = [
        AccessReview("list", "", "nodes", ""),
        AccessReview("watch", "", "nodes", ""),
        AccessReview("patch", "g.io", "things/status", ""),
    ]
    assert [each.words for each in denied_findings(denied, "me", ROLE)] == [
        'nodes is forbidden: "me" may not list or watch them',
        'things/status.g.io is forbidden: "me" may not patch them',
    ]


class NodeWatchingController(Controller[HostInfo]):
    """Reads something that is in no namespace."""

    def __init__(self) -> None:
        self.wake_on(Node, by=lambda node: node.metadata.name)


def test_a_manager_of_some_namespaces_needs_rights_in_these_alone() -> None:
    (everywhere,) = manager_grants((), [NodeWatchingController()])
    assert {each.namespace for each in access_reviews_for(everywhere)} == {""}
    *inside, outside, about_nodes = manager_grants(("a", "b"), [NodeWatchingController()])
    assert [each.namespace for each in inside] == ["a", "b"]
    assert {each.resource for each in access_reviews_for(inside[0])} == {
        "events",
        "hostinfoes",
        "hostinfoes/status",
    }
    assert {(each.resource, each.namespace) for each in access_reviews_for(outside)} == {
        ("nodes", "")
    }
    assert sum(len(access_reviews_for(each)) for each in (inside[0], outside)) == len(
        access_reviews_for(everywhere)
    )
    assert {
        (each.verb, each.resource, each.namespace) for each in access_reviews_for(about_nodes)
    } == {
        ("create", "events", "default"),
        ("patch", "events", "default"),
    }


@pytest.mark.parametrize(
    ("flags", "roles"),
    [
        ((), []),
        (("-webhooks",), ["ClusterRole", "Role"]),
        (("-webhooks", "-webhook-cert-dir=x"), []),
    ],
)
def test_webhooks_need_what_their_component_gives(flags: Sequence[str], roles: list[str]) -> None:
    settings = parse_command_line(Settings, flags, {})
    manager = Manager(
        Connection(server="https://none.invalid", identity=Identity(), source="a test"),
        settings.to_options(MANAGER_NAME),
    )
    build(manager, settings)
    file = ROOT / "config/components/webhooks/webhook_ca_roles.yaml"
    given = {
        each["kind"]: each["rules"]
        for each in yaml.safe_load_all(file.read_text())
        if "rules" in each
    }
    needed = webhook_ca_grants(manager, "here")
    assert [each.rules for each in needed] == [given[kind] for kind in roles]
    assert [each.namespace for each in needed] == ["", "here"][: len(roles)]
    assert {binding_command(next(iter(BINDINGS)), each) for each in needed} <= {
        f"kubectl apply -f {file.relative_to(ROOT)}"
    }


def test_its_fix_does_not_grant_what_it_gave_up() -> None:
    inside, outside, about_nodes = manager_grants(("a",), [NodeWatchingController()])
    for user in BINDINGS:
        assert " create rolebinding " in binding_command(user, inside)
        assert " -n a " in binding_command(user, inside)
        assert "config/components/namespaced/cluster_role.yaml" in binding_command(user, outside)
        assert " -n default create rolebinding " in binding_command(user, about_nodes)
        assert "config/components/namespaced/cluster_events.yaml" in binding_command(
            user, about_nodes
        )
        assert "apply -k config/rbac" not in binding_command(user, inside) + binding_command(
            user, outside
        ) + binding_command(user, about_nodes)


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        (
            "/etc/vc-creds",
            "generic vc-creds --dry-run=client -o yaml --from-literal=GOVMOMI_URL=https://vc.example.com:8443 ",
        ),
        (
            "/etc/vcenters/west",
            "generic vc-creds-west --dry-run=client -o yaml --from-literal=GOVMOMI_USERNAME=USER ",
        ),
        ("", "export GOVMOMI_PASSWORD"),
    ],
)
def test_a_password_is_renewed_where_it_is_read(directory: str, words: str) -> None:
    assert words in renew_credentials_command(
        VCenterConfig("west", Address("vc.example.com", 8443), credentials_directory=directory)
    )


def test_a_privilege_is_a_problem_where_it_is_missing_everywhere_and_a_warning_where_somewhere() -> (
    None
):
    places = [
        EntityRef("Datastore", "ds-1", "/DC0/datastore/a"),
        EntityRef("Datastore", "ds-2", "/DC0/datastore/b c"),
    ]
    need = RequiredPrivileges(
        kinds="VmGroup",
        description="datastores",
        privileges=("Datastore.AllocateSpace",),
        objects=places,
    )
    who = Account("key", "EXAMPLE\\ann")
    (fine,) = check_missing_privileges("VmGroup", [(need, {"ds-1": (), "ds-2": ()})], who)
    assert fine == ok("privileges", 'VmGroup: "EXAMPLE\\ann" has what is needed on datastores')
    (some,) = check_missing_privileges(
        "VmGroup", [(need, {"ds-1": (), "ds-2": need.privileges})], who
    )
    assert (some.level, "on /DC0/datastore/b c, which VmGroup needs" in some.words) == (
        "warning",
        True,
    )
    (none,) = check_missing_privileges(
        "VmGroup", [(need, dict.fromkeys(("ds-1", "ds-2"), need.privileges))], who
    )
    assert (none.level, "on datastores, which VmGroup needs" in none.words) == ("problem", True)
    assert none.fix == (
        "govc role.create vsphere-operators; govc role.update -a vsphere-operators Datastore.AllocateSpace && "
        "govc permissions.set -principal 'EXAMPLE\\ann' -role vsphere-operators -propagate=true /DC0/datastore/a '/DC0/datastore/b c'"
    )


async def failing_check(error: Exception) -> AsyncIterator[Finding]:
    yield ok("first", "well")
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unreachable("gone"), "gone"),
        (ZeroDivisionError("oh"), "this check itself failed: ZeroDivisionError: oh"),
    ],
)
async def test_a_check_that_fails_is_a_finding(error: Exception, words: str) -> None:
    found = [each async for each in run_check("second", failing_check(error))]
    assert found[0] == ok("first", "well")
    assert (found[1].level, found[1].subject) == ("problem", "second")
    assert words in found[1].words


MESSAGES = (
    st.text(st.sampled_from("abc -/:é"), min_size=1, max_size=300).map(str.strip).filter(bool)
)


@given(MESSAGES, st.integers(60, 200))
def test_words_fit_the_terminal_and_none_is_lost(words: str, columns: int) -> None:
    lines = list(
        TextReport(columns=columns).render_finding(
            ("Kubernetes", warning("rights", words, "a fix " * 40))
        )
    )
    assert lines[0] == "Kubernetes"
    assert lines[-1].endswith("a fix " * 40)
    longest = max(map(len, words.split()))
    assert all(len(line) <= max(columns, 24 + longest) for line in lines[1:-1])
    assert "".join(lines[1:-1]).replace(" ", "").endswith(words.replace(" ", ""))


def test_colours_are_for_terminals() -> None:
    line = ("Kubernetes", problem("rights", "no", "yes"))
    assert "\x1b" not in "".join(TextReport().render_finding(line))
    assert "\x1b[1;31mproblem" in "".join(TextReport(color=True).render_finding(line))


def test_the_summary_counts() -> None:
    assert summary([ok("a", "b")]) == "No problems, 0 warnings."
    assert summary([problem("a", "b"), warning("a", "b")]).startswith(
        "1 problem, 1 warning. Mend them from the top"
    )
    assert '"healthy": false' in as_json([("x", problem("a", "b"))])


def test_a_metrics_address_that_is_taken_can_be_exchanged_for_a_free_one() -> None:
    found = address_in_use("http://127.0.0.1:8080/metrics", "it answers with status 404")
    assert found.level == "problem"
    assert found.fix.startswith("manager -metrics-addr=:0 ")
