"""The chart in charts/: every value has an effect, and wrong values are explained."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubewright.builder.cli import main
from kubewright.flags import parse_command_line
from kubewright.yaml_text import parse_documents
from support.chart_values import (
    NAMESPACE,
    change_value,
    find_values_without_effect,
    list_fields,
    list_leaves,
    read_values,
)
from support.chart_values import render as render_chart
from support.helm import Helm, HelmFailed, Json, Objects
from vsphere_operators.kinds.vmgroup.limits import LIMITS_FILE_FORMAT
from vsphere_operators.settings.flags import Settings
from vsphere_operators.vcenters.config import VCENTERS_FORMAT

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/vsphere-operators"
DEPLOYMENT = ("Deployment", NAMESPACE, "vsphere-operators-controller-manager")
VALUES = read_values(ROOT)
VCENTERS = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
API_SERVER = [{"ipBlock": {"cidr": "198.51.100.1/32"}}]
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text())


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def render(helm: Helm, values: Mapping[str, Any]) -> Objects:
    return copy.deepcopy(render_once(helm, json.dumps(values)))


@functools.cache
def render_once(helm: Helm, values: str) -> Objects:
    """Several tests render the chart with the same values."""
    return render_chart(helm, CHART, json.loads(values))


def test_chart_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["helm", "--check", "--project", str(ROOT), "--output", str(CHART)]
    assert main(arguments) == 0, capsys.readouterr().err


def test_lint_finds_nothing(helm: Helm) -> None:
    output = helm.run("lint", "--strict", str(CHART), "--set=image.repository=operators")
    assert "0 chart(s) failed" in output
    assert "[WARNING]" not in output
    assert "[ERROR]" not in output


def test_package_has_every_file(helm: Helm, tmp_path: Path) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    shown = helm.run("show", "all", str(package))
    assert "artifacthub.io/crds" in shown
    assert "## Values" in shown


def test_every_value_changes_the_output(helm: Helm) -> None:
    paths = list(list_leaves(SCHEMA))
    assert set(paths) == VALUES.keys()
    assert find_values_without_effect(helm, CHART, VALUES, paths) == []


ITEM_FIELDS = [
    (path, field)
    for path in ("vcenters", "vmGroups.limits")
    for field in list_fields(VALUES[path].schema["items"])
    # Instead of existingSecret, which the example has.
    if field not in (("username",), ("password",))
]


@pytest.mark.parametrize(("path", "field"), ITEM_FIELDS, ids=str)
def test_every_field_of_a_list_changes_the_output(
    helm: Helm, path: str, field: tuple[str, ...]
) -> None:
    example = VALUES[path].example
    item = copy.deepcopy(example[0])
    node = item
    for key in field[:-1]:
        node = node[key]
    node[field[-1]] = change_value(node[field[-1]])
    assert render(helm, {path: [item]}) != render(helm, {path: example})


def test_password_of_a_vcenter_is_in_a_secret_of_its_own(helm: Helm) -> None:
    vcenter = {"name": "west", "server": "vc.example.com", "username": "ops", "password": "s3cret"}
    objects = render(helm, {"vcenters": [vcenter]})
    secret = objects["Secret", NAMESPACE, "vsphere-operators-vcenter-west"]
    assert secret["stringData"] == {"username": "ops", "password": "s3cret"}
    del objects["Secret", NAMESPACE, "vsphere-operators-vcenter-west"]
    assert "s3cret" not in json.dumps(list(objects.values()))


def test_manager_reads_the_files_and_flags_of_the_chart(helm: Helm, tmp_path: Path) -> None:
    """The manager's own parsers accept what the examples of all values render to."""
    paths = ("vcenters", "vmGroups.limits", "vmGroups.allowedTemplates")
    values = {path: VALUES[path].example for path in paths} | {
        "webhooks.enabled": True,
        "labelNodes.enabled": True,
        "page.enabled": True,
        "inventoryMetrics.enabled": True,
        "metrics.existingSecret": "certificate",
    }
    objects = render(helm, values)
    for name, file in (
        ("vsphere-operators-vcenters", "vcenters.yaml"),
        ("vsphere-operators-limits", "limits.yaml"),
    ):
        (tmp_path / file).write_text(objects["ConfigMap", NAMESPACE, name]["data"][file])
    (vcenter,) = VCENTERS_FORMAT.read(str(tmp_path / "vcenters.yaml")).vcenters
    assert vcenter.ca == "ca-west.crt"
    (limits,) = LIMITS_FILE_FORMAT.read(str(tmp_path / "limits.yaml")).limits
    assert limits.quota.vms == 20
    pod = objects[DEPLOYMENT]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    settings = parse_command_line(Settings, container["args"], {})
    assert settings.vcenters_file == "/etc/vcenters/vcenters.yaml"
    assert settings.limits_file == "/etc/vmgroup-limits/limits.yaml"
    assert settings.allowed_templates == ("/DC0/vm/templates",)
    assert settings.metrics_certificate_dir == "/etc/metrics-certificates"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    # Every file that a flag names is below a mount.
    folders = [mount["mountPath"] for mount in container["volumeMounts"]]
    files = [settings.vcenters_file, settings.limits_file, settings.credentials_directory]
    files.append(vcenter.credentials)
    assert all(any(file.startswith(folder) for folder in folders) for file in files)


WRONG_VALUES: list[tuple[Json, str]] = [
    ({"image.repository": ""}, "image.repository is not set"),
    ({"replica": 2}, "additional properties 'replica' not allowed"),
    ({"replicas": "two"}, "at '/replicas': got string, want integer"),
    ({"image.digest": "sha256:1"}, "at '/image/digest': .* does not match pattern"),
    ({"image.repository": "example.com/x:v1"}, "at '/image/repository': .* not match pattern"),
    ({"image.repository": "example.com/x@sha256:1"}, "at '/image/repository': .* not match"),
    ({"image.tag": "@sha256:aa"}, "at '/image/tag': .* does not match pattern"),
    ({"resources.limit.cpu": "2"}, "at '/resources': additional properties 'limit' not allowed"),
    ({"resources.limits.memory": "lots"}, "at '/resources/limits/memory': .* not match pattern"),
    ({"hostAliases": [{"hostnames": ["vc"]}]}, "at '/hostAliases/0': missing property 'ip'"),
    ({"terminationGracePeriodSeconds": 0}, "at '/terminationGracePeriodSeconds': minimum"),
    ({"replicas": 2, "leaderElection.enabled": False}, "Enable the election, or set replicas=1"),
    ({"podDisruptionBudget.enabled": True}, "there is only one replica"),
    ({"podDisruptionBudget.minAvailable": 2, "replicas": 2}, "not less than replicas"),
    (
        {
            "webhooks.enabled": True,
            "webhooks.certManager": True,
            "webhooks.existingSecret": "certificate",
            "webhooks.caBundle": "Q0E=",
        },
        "webhooks have only one CA",
    ),
    ({"webhooks.existingSecret": "certificate"}, "webhooks.caBundle is not"),
    ({"webhooks.caBundle": "Q0E="}, "webhooks.existingSecret is not"),
    ({"metrics.certManager": True, "metrics.existingSecret": "x"}, "only one certificate"),
    ({"metrics.serviceMonitor.enabled": True}, "Prometheus cannot verify"),
    (
        {"metrics.serviceMonitor.enabled": True, "metrics.enabled": False},
        "there is nothing to scrape",
    ),
    ({"networkPolicy.egress.enabled": True}, "networkPolicy.enabled is false"),
    (
        {
            "networkPolicy.enabled": True,
            "networkPolicy.egress.enabled": True,
            "networkPolicy.egress.vcenters.to": VCENTERS,
        },
        r"networkPolicy\.egress\.apiServer\.to is not: its rule allows connections to any address",
    ),
    ({"vcenter.server": "vc.example.com"}, "only some of vcenter.server"),
    ({"vcenters": [{"name": "west", "server": "vc"}]}, '"west" needs either existingSecret'),
    (
        {"vcenters": [{"name": "west", "server": "vc", "existingSecret": "x"}] * 2},
        'two entries with the name "west"',
    ),
    (
        {"vcenters": [{"name": "west", "server": "vc", "existingSecret": "x", "username": "ops"}]},
        '"west" has existingSecret, and username or password',
    ),
    (
        {
            "vcenter.server": "vc",
            "vcenter.username": "ops",
            "vcenter.password": "changeme",
            "vcenters": [{"name": "west", "server": "vc", "existingSecret": "x"}],
        },
        '"west" has no namespaces',
    ),
    ({"vcenters": [{"name": "West", "server": "vc"}]}, "at '/vcenters/0/name': .* pattern"),
    ({"vcenters": [{"name": "west", "credentials": "x"}]}, "missing property 'server'"),
    (
        {"vmGroups.limits": [{"namespaces": ["*"]}], "vmGroups.existingLimitsSecret": "limits"},
        "vmGroups.existingLimitsSecret are both set",
    ),
    ({"vmGroups.limits": [{"quota": {"vms": "many"}}]}, "quota/vms': got string, want integer"),
    ({"env": [{"name": "A", "value": 1}]}, "at '/env/0/value': got number, want string"),
    ({"env": [{"name": "A", "val": "b"}]}, "at '/env/0': additional properties 'val' not allowed"),
    # In YAML, a key without a value is null.
    ({"metrics": None}, "missing property 'metrics'"),
    ({"networkPolicy.egress": None}, "at '/networkPolicy': missing property 'egress'"),
    ({"crds.keep": None}, "at '/crds': missing property 'keep'"),
    ({"secrets.vc-creds": None}, "at '/secrets': missing property 'vc-creds'"),
]


@pytest.mark.parametrize(("values", "message"), WRONG_VALUES, ids=lambda value: str(value)[:60])
def test_wrong_values_are_explained(helm: Helm, values: Json, message: str) -> None:
    with pytest.raises(HelmFailed, match=message):
        render(helm, values)


OPTIONAL_VALUES = [
    path
    for path, value in VALUES.items()
    if value.default in ("", [], {}, None) and path != "image.repository"
]


def test_optional_values_may_be_null(helm: Helm) -> None:
    """`labels:` without a value, such as with all of its entries commented out."""
    assert "labels" in OPTIONAL_VALUES
    nothing = dict.fromkeys(OPTIONAL_VALUES)
    shown = {"webhooks.enabled": True, "networkPolicy.enabled": True, "dashboards.enabled": True}
    assert render(helm, shown | nothing) == render(helm, shown)


def hide_strings(node: Any) -> Any:
    """The same node with all strings replaced, so that only the types of its values differ."""
    match node:
        case dict():
            return {key: hide_strings(child) for key, child in node.items()}
        case list():
            return [hide_strings(child) for child in node]
        case str():
            return "string"
    return node


@pytest.mark.parametrize("name", ["123", "0x10", "true", "null"])
def test_names_that_yaml_could_take_for_another_type(helm: Helm, name: str) -> None:
    def render_with(name: str) -> Any:
        vcenter = {"server": name, "username": name, "password": name}
        values: Json = {
            "image": {"repository": "operators"},
            "createNamespace": True,
            "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
            "metrics": {"existingSecret": name, "serviceMonitor": {"enabled": True}},
            "webhooks": {"enabled": True, "existingSecret": name, "caBundle": "Q0E="},
            "dashboards": {"enabled": True},
            "serviceAccount": {"name": name},
            "vcenter": vcenter,
            "vcenters": [{"name": name, "namespaces": {"names": [name]}, **vcenter}],
            "vmGroups": {"limits": [{"namespaces": [name]}]},
            "priorityClassName": name,
            "labels": {"team": name},
        }
        return hide_strings(list(helm.template(CHART, name, values).values()))

    assert render_with(name) == render_with("plain")


def test_empty_labels_of_users_are_kept(helm: Helm) -> None:
    objects = render(helm, {"labels": {"team": ""}, "annotations": {"note": ""}})
    metadata = objects[DEPLOYMENT]["metadata"]
    assert metadata["labels"]["team"] == ""
    assert metadata["annotations"] == {"note": ""}


def test_egress_is_limited_to_what_the_manager_uses(helm: Helm) -> None:
    objects = render(
        helm,
        {
            "networkPolicy.enabled": True,
            "networkPolicy.egress.enabled": True,
            "networkPolicy.egress.apiServer.to": API_SERVER,
            "networkPolicy.egress.vcenters.to": VCENTERS,
        },
    )
    spec = objects["NetworkPolicy", NAMESPACE, "vsphere-operators-controller-manager"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    ports = [
        {(port["protocol"], port["port"]) for port in rule["ports"]} for rule in spec["egress"]
    ]
    assert ports == [
        {("UDP", 53), ("TCP", 53)},
        {("TCP", 443), ("TCP", 6443)},
        {("TCP", 443)},
    ]
    assert [rule.get("to") for rule in spec["egress"]] == [None, API_SERVER, VCENTERS]


def test_egress_needs_no_api_server_address_without_a_common_port(helm: Helm) -> None:
    egress: Json = {"enabled": True, "apiServer": {"ports": [6443]}, "vcenters": {"to": VCENTERS}}
    objects = render(helm, {"networkPolicy": {"enabled": True, "egress": egress}})
    spec = objects["NetworkPolicy", NAMESPACE, "vsphere-operators-controller-manager"]["spec"]
    assert [rule.get("to") for rule in spec["egress"]] == [None, None, VCENTERS]


@pytest.mark.parametrize(
    ("api", "project", "values"),
    [
        (
            "monitoring.coreos.com/v1/ServiceMonitor",
            "the Prometheus Operator",
            ["metrics.existingSecret=x", "metrics.serviceMonitor.enabled=true"],
        ),
        (
            "monitoring.coreos.com/v1/PrometheusRule",
            "the Prometheus Operator",
            ["manifests.prometheusRule=true"],
        ),
        ("cert-manager.io/v1/Certificate", "cert-manager", ["metrics.certManager=true"]),
        (
            "cert-manager.io/v1/Certificate",
            "cert-manager",
            ["webhooks.enabled=true", "webhooks.certManager=true"],
        ),
    ],
)
def test_missing_crds_of_other_projects_are_explained(
    helm: Helm, api: str, project: str, values: list[str]
) -> None:
    settings = [f"--set={value}" for value in ("image.repository=operators", *values)]
    command = ["template", "release", str(CHART), *settings]
    # As on an API server, which `helm template` does not ask.
    command.append("--api-versions=apiregistration.k8s.io/v1")
    name = values[-1].removesuffix("=true")
    message = f"{name} is true, but the cluster has no CRD for .* Install {project} first"
    with pytest.raises(HelmFailed, match=message):
        helm.run(*command)
    assert api.rpartition("/")[2] in helm.run(*command, f"--api-versions={api}")


def test_security_contexts_are_merged_with_the_restricted_profile(helm: Helm) -> None:
    values = {
        "podSecurityContext": {"fsGroup": 1000, "seccompProfile": None},
        "securityContext": {"readOnlyRootFilesystem": False},
    }
    pod = render(helm, values)[DEPLOYMENT]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "fsGroup": 1000}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def render_notes(helm: Helm, *values: str) -> str:
    settings = [f"--set={value}" for value in ("image.repository=operators", *values)]
    command = ("install", "release", str(CHART), "--dry-run=client", "--namespace", NAMESPACE)
    return helm.run(*command, *settings).partition("\nNOTES:\n")[2]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["page.enabled=true"], "port-forward"),
        (["webhooks.enabled=true"], "The webhooks reject"),
        (["labelNodes.enabled=true"], "kubectl get nodes -L"),
        (["namespaced=true"], f"vminfoes -n {NAMESPACE}"),
        (["crds.keep=false"], "Delete all VmGroups before `helm uninstall`"),
    ],
)
def test_notes_follow_the_values(helm: Helm, values: list[str], shown: str) -> None:
    assert shown not in render_notes(helm)
    assert shown in render_notes(helm, *values)


def test_notes_ask_for_the_secret_only_if_the_chart_does_not_create_it(helm: Helm) -> None:
    assert "create secret generic my-creds" in render_notes(helm, "secrets.vc-creds=my-creds")
    account = ("server=vc.example.com", "username=ops", "password=changeme")
    assert "create secret" not in render_notes(helm, *(f"vcenter.{value}" for value in account))


def test_service_monitor_verifies_the_certificate(helm: Helm) -> None:
    objects = render(
        helm,
        {"metrics.certManager": True, "metrics.serviceMonitor.enabled": True},
    )
    service = ("Service", NAMESPACE, "vsphere-operators-controller-manager-metrics-service")
    host = f"{service[2]}.{NAMESPACE}.svc"
    assert service in objects
    certificate = objects["Certificate", NAMESPACE, "vsphere-operators-metrics-cert"]["spec"]
    monitor = objects[
        "ServiceMonitor", NAMESPACE, "vsphere-operators-controller-manager-metrics-monitor"
    ]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {
        "serverName": host,
        "ca": {"secret": {"name": certificate["secretName"], "key": "ca.crt"}},
    }
    assert host in certificate["dnsNames"]
    volumes = objects[DEPLOYMENT]["spec"]["template"]["spec"]["volumes"]
    assert certificate["secretName"] in {
        volume["secret"]["secretName"] for volume in volumes if "secret" in volume
    }


def test_user_labels_do_not_replace_those_of_the_chart(helm: Helm) -> None:
    labels = {"team": "a", "app.kubernetes.io/name": "other"}
    objects = render(helm, {"labels": labels, "podLabels": labels})
    for key, item in objects.items():
        assert item["metadata"]["labels"]["team"] == "a", key
    deployment = objects[DEPLOYMENT]["spec"]
    pod_labels = deployment["template"]["metadata"]["labels"]
    assert pod_labels["app.kubernetes.io/name"] == "vsphere-operators"
    assert deployment["selector"]["matchLabels"].items() <= pod_labels.items()


def test_roles_bind_the_service_account_of_the_values(helm: Helm) -> None:
    objects = render(helm, {"serviceAccount.name": "robot", "webhooks.enabled": True})
    subjects = {
        (subject["name"], subject["namespace"])
        for item in objects.values()
        for subject in item.get("subjects", [])
    }
    assert subjects == {("robot", NAMESPACE)}
    assert objects[DEPLOYMENT]["spec"]["template"]["spec"]["serviceAccountName"] == "robot"
    assert ("ServiceAccount", NAMESPACE, "robot") in objects


@pytest.mark.parametrize(
    ("page", "file"), [("install", "production.yaml"), ("several-vcenters", "values.yaml")]
)
def test_values_of_the_documentation_are_valid(helm: Helm, page: str, file: str) -> None:
    text = (ROOT / f"docs/howto/{page}.md").read_text()
    match = re.search(rf"```yaml {file}\n(.*?)```", text, re.DOTALL)
    assert match is not None
    (values,) = parse_documents(match[1], page)
    paths = {path: value for path, value in values.items() if path != "image"}
    assert render(helm, paths) != render(helm, {})
