"""Generated manifests: least privileges, reproducible files, and detection of stale ones."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.builder.api_docs import _render_rows
from kubewright.builder.cli import main
from kubewright.builder.manifests.deployment import manager_labels
from kubewright.builder.manifests.installer import _run_kustomize, find_manager, replace_image
from kubewright.builder.project import Project
from kubewright.builtin import ConfigMap, Node
from kubewright.controller import Controller
from kubewright.errors import ConfigError
from kubewright.rbac import LEADER_RULES, manager_rules
from support.golden_projects import read_project_files

from ...support.widget_kind import Friend, Widget
from ..builder_commands import commit_project, run_git, run_manifests

ROOT = Path(__file__).parents[5]


class WidgetController(Controller[Widget]):
    finalizer = "kubewright.test/hold"

    def __init__(self) -> None:
        self.watches(Friend, index_by=lambda widget: widget.spec.friend)
        self.owns(ConfigMap)
        self.needs(ConfigMap, "create", "delete")
        self.needs(Node, "patch")


def verbs_by_resource(rules: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {
        f"{rule['resources'][0]}.{rule['apiGroups'][0]}".rstrip("."): rule["verbs"]
        for rule in rules
    }


def test_permissions_follow_from_declarations() -> None:
    assert verbs_by_resource(manager_rules([WidgetController()])) == {
        "configmaps": ["create", "delete", "list", "patch", "watch"],
        "events": ["create", "patch"],
        "nodes": ["patch"],
        "friends.kubewright.test": ["list", "watch"],
        "widgets.kubewright.test": ["list", "patch", "watch"],
        "widgets/finalizers.kubewright.test": ["update"],
        "widgets/status.kubewright.test": ["patch", "update"],
    }


def test_no_role_has_a_wildcard() -> None:
    texts = [path.read_text() for path in (ROOT / "config/rbac").glob("*.yaml")]
    assert len(texts) > 5
    assert not any("'*'" in text or '"*"' in text for text in texts)
    assert verbs_by_resource(LEADER_RULES) == {
        "leases.coordination.k8s.io": ["create", "get", "list", "patch"]
    }


@pytest.fixture
def repository_copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def test_check_names_a_stale_file(
    repository_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["manifests", "--check", "--project", str(repository_copy)]) == 0
    role = repository_copy / "config/rbac/role.yaml"
    role.write_text(role.read_text().replace("- watch", "- watch\n  - delete"))
    assert main(["manifests", "--check", "--project", str(repository_copy)]) == 1
    error = capsys.readouterr().err
    assert "config/rbac/role.yaml" in error
    assert "make manifests" in error
    assert main(["manifests", "--project", str(repository_copy)]) == 0
    assert main(["manifests", "--check", "--project", str(repository_copy)]) == 0


def test_file_of_a_removed_kind_is_removed(repository_copy: Path) -> None:
    old = repository_copy / "config/crd/bases/gone.test_olds.yaml"
    old.write_text((repository_copy / "config/crd/kustomization.yaml").read_text())
    custom = repository_copy / "config/rbac/by_hand.yaml"
    custom.write_text("# written by hand\n")
    assert main(["manifests", "--check", "--project", str(repository_copy)]) == 1
    assert main(["manifests", "--project", str(repository_copy)]) == 0
    assert not old.exists()
    assert custom.exists()


def test_second_run_writes_nothing(
    repository_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["manifests", "--project", str(repository_copy)]) == 0
    assert capsys.readouterr().out == ""


def verbs_of_users(binaries: dict[str, Path], folder: Path, role: str) -> set[str]:
    """What users with this role of Kubernetes may do with VmGroups, by aggregation."""
    rendered = _run_kustomize(ROOT, folder, str(binaries["kubectl"]))
    documents = [document for document in yaml.safe_load_all(rendered) if document]
    return {
        verb
        for document in documents
        if f"rbac.authorization.k8s.io/aggregate-to-{role}"
        in (document["metadata"].get("labels") or {})
        for rule in document["rules"]
        if "vmgroups" in rule["resources"]
        for verb in rule["verbs"]
    }


def test_only_a_component_lets_editors_of_namespaces_change_vmgroups(
    binaries: dict[str, Path], tmp_path: Path
) -> None:
    default = ROOT / "config/default"
    read_only = {"get", "list", "watch"}
    assert verbs_of_users(binaries, default, "view") == read_only
    assert verbs_of_users(binaries, default, "edit") == set()
    assert verbs_of_users(binaries, default, "admin") == set()
    shutil.copytree(ROOT / "config", tmp_path / "config")
    overlay = tmp_path / "config/overlays/editors"
    overlay.mkdir(parents=True)
    (overlay / "kustomization.yaml").write_text(
        "resources: [../../default]\ncomponents: [../../components/aggregate-editors]\n"
    )
    write = read_only | {"create", "delete", "patch", "update"}
    assert verbs_of_users(binaries, overlay, "edit") == write
    assert verbs_of_users(binaries, overlay, "admin") == write | {"deletecollection"}


# Pod is in the project, but Kubernetes has its CRD and its roles.
@pytest.mark.parametrize("name", ["Hosue", "Pod"])
def test_an_unknown_kind_of_optional_editors_is_rejected(greeter: Path, name: str) -> None:
    pyproject = greeter / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text().replace(
            "components = []", f'components = []\noptional_editors = ["{name}"]'
        )
    )
    with pytest.raises(
        ConfigError,
        match=rf"optional_editors: unknown {name}; must be one of Greeting, House, Site, Street$",
    ):
        Project.read(greeter)


def test_generated_files_have_a_header_and_are_valid_yaml() -> None:
    for path in [*(ROOT / "config/crd").rglob("*.yaml"), *(ROOT / "config/rbac").glob("*.yaml")]:
        assert path.read_text().startswith("# Generated by"), path
        assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "pyproject.toml does not exist"),
        ("[project]\n", r"no \[tool\.kubewright\] table"),
        ("[tool.kubewright]\nname = 'x'\n", "lacks build, settings"),
        ("nonsense", "pyproject.toml"),
    ],
)
def test_folder_that_is_not_a_project_is_rejected(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Project.read(tmp_path)


def test_reference_to_a_missing_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.kubewright]\nname='x'\nbuild='nowhere.main:build'\nsettings='nowhere:S'\n"
    )
    with pytest.raises(ConfigError, match=r"nowhere\.main:build"):
        Project.read(tmp_path).load_declarations()


def test_breaking_change_is_reported_after_the_files_were_written(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = greeter
    commit_project(root)
    check = ["manifests", "--check", "--project", str(root)]
    assert main(check) == 0
    crd = root / "config/crd/bases/demo.example.com_houses.yaml"
    committed = crd.read_text()
    crd.write_text(committed.replace("rooms", "floors"))
    run_git(root, "commit", "-qam", "test: users have floors")
    crd.write_text(committed)
    capsys.readouterr()
    assert main(check) == 1
    error = capsys.readouterr().err
    assert "breaking: houses.demo.example.com v1alpha1.spec.floors: field removed" in error
    assert "v1alpha1.spec.rooms: new required field" in error
    assert "scripts that read it find nothing. Keep the field" in " ".join(error.split())
    assert "Compared with the CRDs of HEAD." in error
    assert main([*check, "--allow-breaking"]) == 0
    assert main([*check, "--against", "HEAD~1"]) == 0
    assert main([*check, "--against", "nowhere"]) == 1
    assert "is not a commit" in capsys.readouterr().err


def test_kinds_and_fields_without_a_description_are_reported(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["manifests", "--check", "--project", str(greeter)]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 5
    assert (
        "warning: greetings.demo.example.com v1: no description of the kind, .spec.foo, "
        ".status.echo. Add a docstring" in warnings[0]
    )
    assert (
        "houses.demo.example.com v1alpha1: no description of .spec.doors[].name, "
        ".spec.doors[].lock.model, .spec.labels, .status.checked. Add" in warnings[2]
    )


def test_policy_makes_a_change_breaking(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crd = greeter / "config/crd/bases/demo.example.com_houses.yaml"
    current = crd.read_text()
    crd.write_text(current.replace("desired state", "wanted state"))
    commit_project(greeter)
    crd.write_text(current)
    check = ["manifests", "--check", "--project", str(greeter)]
    assert main([*check, "--policy", "null-allowed"]) == 0
    assert main([*check, "--policy", "null-allowed", "--policy", "description-changed"]) == 1
    assert "(policy description-changed)" in capsys.readouterr().err
    assert main([*check, "--policy", "all"]) == 1
    assert main([*check, "--policy", "other"]) == 2
    assert "required-with-default" in capsys.readouterr().err


def test_kind_of_kubernetes_gets_no_crd_and_no_roles_for_users(greeter: Path) -> None:
    main_file = greeter / "src/greeter/main.py"
    main_file.write_text(
        main_file.read_text()
        .replace("manager.add(HouseController())", "manager.add(OtherPodController())")
        .replace(
            "from .kinds.house import HouseController",
            "from kubewright import Controller, Done, Pod\n\n\n"
            "class OtherPodController(Controller[Pod]):\n"
            "    name = 'other-pods'\n\n"
            "    async def reconcile(self, pod: Pod) -> Done:\n"
            "        return Done()\n",
        )
        .replace("    manager.add(HouseWebhook())\n", "")
    )
    assert run_manifests(greeter).returncode == 0
    crds = {path.name for path in (greeter / "config/crd/bases").iterdir()}
    assert "demo.example.com_houses.yaml" not in crds
    assert not [name for name in crds if "pods" in name]
    assert not (greeter / "config/rbac/pod_user_roles.yaml").exists()
    role = yaml.safe_load((greeter / "config/rbac/role.yaml").read_text())
    assert "list" in verbs_by_resource(role["rules"])["pods"]


def test_crds_of_a_cluster_are_compared_with_their_stored_versions(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `kubectl get crds -o yaml` prints them, with those of other operators."""
    house = yaml.safe_load((greeter / "config/crd/bases/demo.example.com_houses.yaml").read_text())
    installed, foreign = copy.deepcopy(house), copy.deepcopy(house)
    old_version = installed["spec"]["versions"][0] | {"name": "v1alpha0", "storage": False}
    installed["spec"]["versions"].append(old_version)
    installed["status"] = {"storedVersions": ["v1alpha0", "v1alpha1"]}
    foreign["spec"]["group"], foreign["metadata"]["name"] = "other.org", "houses.other.org"
    crds = {"apiVersion": "v1", "kind": "List", "items": [installed, foreign]}
    (greeter / "crds.yaml").write_text(yaml.safe_dump(crds))
    check = ["manifests", "--check", "--project", str(greeter), "--against", "crds.yaml"]
    assert main(check) == 1
    error = capsys.readouterr().err
    assert error.count("breaking: ") == 1
    assert "houses.demo.example.com v1alpha0: version removed" in error
    assert "The API server rejects the CRD as long as" in " ".join(error.split())


UNREADABLE_FILES = [
    ("config/samples/custom.yaml", "a: [", "custom.yaml is not valid YAML"),
    ("config/samples/custom.yaml", "a: \udce9", "custom.yaml is not UTF-8 text"),
    ("config/overlays/custom.yaml", "a: \udce9", "custom.yaml is not UTF-8 text"),
    ("pyproject.toml", "a = '\udce9'", "pyproject.toml: 'utf-8' codec can't decode"),
    ("src/greeter/kinds/house.py", "x = (", "house.py line 1: '(' was never closed"),
    ("src/greeter/kinds/house.py", "x = 1 / 0", "ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(
    ("path", "text", "message"),
    UNREADABLE_FILES,
    ids=["sample", "sample-bytes", "overlay-bytes", "project-bytes", "syntax", "import"],
)
def test_invalid_file_is_named(greeter: Path, path: str, text: str, message: str) -> None:
    (greeter / path).parent.mkdir(exist_ok=True)
    (greeter / path).write_bytes(text.encode(errors="surrogateescape"))
    process = run_manifests(greeter)
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (
            "without-webhooks",
            "without-webhooks, which requires webhooks that are always on; available: ",
        ),
        (
            "cert-manager",
            "cert-manager, which issues the certificate of webhooks: add webhooks",
        ),
    ],
)
def test_unavailable_component_is_rejected(
    repository_copy: Path, capsys: pytest.CaptureFixture[str], component: str, message: str
) -> None:
    pyproject = repository_copy / "pyproject.toml"
    line = f'name = "vsphere-operators"\ncomponents = ["{component}"]\nbuild'
    pyproject.write_text(pyproject.read_text().replace('name = "vsphere-operators"\nbuild', line))
    assert main(["manifests", "--project", str(repository_copy)]) == 1
    assert message in capsys.readouterr().err


def test_component_that_requires_a_webhook_is_rejected(project: Path) -> None:
    pyproject = project / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text().replace("components = []", 'components = ["cert-manager"]')
    )
    process = run_manifests(project)
    assert process.returncode == 1
    assert "cert-manager, which requires a webhook" in process.stderr


def read_documents(path: Path) -> Any:
    return list(yaml.safe_load_all(path.read_text()))


def test_optional_webhooks_are_a_component(optional_webhook_project: Path) -> None:
    config = optional_webhook_project / "config"
    (default,) = read_documents(config / "default/kustomization.yaml")
    assert default["resources"] == ["../crd", "../manager", "../rbac"]
    assert sorted(path.name for path in (config / "components").iterdir()) == [
        "cert-manager",
        "ha",
        "namespaced",
        "network-policy",
        "prometheus",
        "shards",
        "webhooks",
    ]
    assert not (config / "rbac/webhook_ca_roles.yaml").exists()
    (role,) = read_documents(config / "rbac/role.yaml")
    assert "configmaps" not in verbs_by_resource(role["rules"])
    (webhook_role, _) = read_documents(config / "components/webhooks/webhook_role.yaml")
    assert verbs_by_resource(webhook_role["rules"]) == {"configmaps": ["get"]}
    (deployed,) = read_documents(config / "manager/manager.yaml")
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    assert "-hooks" not in container["args"]
    assert [port["name"] for port in container["ports"]] == ["metrics", "health"]
    assert [item["kind"] for item in read_documents(config / "webhook/manifests.yaml")] == [
        "ValidatingWebhookConfiguration"
    ]


def test_components_are_applied_in_an_order_that_works(
    repository_copy: Path, binaries: dict[str, Path]
) -> None:
    pyproject = repository_copy / "pyproject.toml"
    components = '["cert-manager", "webhooks", "network-policy"]'
    line = f'name = "vsphere-operators"\ncomponents = {components}\nbuild'
    pyproject.write_text(pyproject.read_text().replace('name = "vsphere-operators"\nbuild', line))
    assert main(["manifests", "--project", str(repository_copy)]) == 0
    documents = list(
        yaml.safe_load_all(
            _run_kustomize(
                repository_copy, repository_copy / "config/default", str(binaries["kubectl"])
            )
        )
    )
    (policy,) = (item for item in documents if item["kind"] == "NetworkPolicy")
    assert policy["spec"]["ingress"][-1] == {"ports": [{"port": 9443, "protocol": "TCP"}]}
    assert not any("webhook-ca" in item["metadata"]["name"] for item in documents)


INEFFECTIVE_FLAGS = {
    "always on": ("if settings.hooks:", "if True:"),
    "none at all": ("if settings.hooks:", "if False:"),
}


@pytest.mark.parametrize("change", INEFFECTIVE_FLAGS.values(), ids=INEFFECTIVE_FLAGS)
def test_flag_that_does_not_add_the_webhooks_is_rejected(
    optional_webhook_project: Path,
    tmp_path: Path,
    change: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, package = (
        Path(shutil.copytree(optional_webhook_project, tmp_path / "greeter")),
        f"optional{list(INEFFECTIVE_FLAGS.values()).index(change)}",
    )
    (root / "src/optional").rename(root / "src" / package)
    file, pyproject = root / "src" / package / "main.py", root / "pyproject.toml"
    file.write_text(file.read_text().replace(*change))
    pyproject.write_text(pyproject.read_text().replace('"optional.', f'"{package}.'))
    assert main(["manifests", "--check", "--project", str(root)]) == 1
    assert "must add webhooks with this flag and none without it" in capsys.readouterr().err


def test_unknown_flag_is_named(repository_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyproject = repository_copy / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text().replace(
            'optional_webhooks = "-webhooks"', 'optional_webhooks = "-webhoks"'
        )
    )
    assert main(["manifests", "--check", "--project", str(repository_copy)]) == 1
    assert "webhoks" in capsys.readouterr().err


def test_without_git_crds_are_compared_with_the_files_on_disk(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = greeter
    crd = root / "config/crd/bases/demo.example.com_houses.yaml"
    crd.write_text(crd.read_text().replace("rooms", "floors"))
    assert main(["manifests", "--check", "--project", str(root)]) == 1
    assert "field removed" in capsys.readouterr().err
    assert main(["manifests", "--project", str(root)]) == 0
    assert "breaking" not in capsys.readouterr().err
    assert main(["manifests", "--check", "--against", "origin/main", "--project", str(root)]) == 1
    assert '"origin/main" is not a commit in' in capsys.readouterr().err


def test_webhooks_conversion_and_their_permissions_are_generated(greeter: Path) -> None:
    root = greeter
    crd = yaml.safe_load((root / "config/crd/bases/demo.example.com_greetings.yaml").read_text())
    assert [(item["name"], item["storage"]) for item in crd["spec"]["versions"]] == [
        ("v1", False),
        ("v2", True),
    ]
    service = crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert (service["name"], service["namespace"]) == ("greeter-webhook-service", "greeter-system")
    configured = [
        item["kind"]
        for item in yaml.safe_load_all((root / "config/webhook/manifests.yaml").read_text())
    ]
    assert configured == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    roles = yaml.safe_load_all((root / "config/rbac/webhook_ca_roles.yaml").read_text())
    cluster_role = next(role for role in roles if role["kind"] == "ClusterRole")
    assert all(rule["resourceNames"] for rule in cluster_role["rules"])


def test_duplicate_version_and_invalid_webhook_are_rejected(
    greeter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = greeter
    before = read_project_files(root)
    project = ("--project", str(root))
    rejected = {
        ("create", "webhook", "--kind", "Greeting", "--defaulting"): "already has a webhook",
        ("create", "webhook", "--kind", "Town", "--defaulting"): "has no kind",
        ("create", "webhook", "--kind", "Street"): "specify what the webhook does",
        ("create", "api", "--group", "demo", "--version", "v2", "--kind", "Greeting"): "already",
        (
            "create",
            "api",
            "--group",
            "demo",
            "--version",
            "v2",
            "--kind",
            "House",
            "--spec",
            "a:str",
        ): "omit --spec",
    }
    for command, message in rejected.items():
        assert main([*command, *project]) == 1, command
        assert message in capsys.readouterr().err
    assert read_project_files(root) == before


def test_api_reference_lists_every_field(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = greeter
    assert main(["docs", "--project", str(root)]) == 0
    page = (root / "docs/api.md").read_text()
    assert "| `rooms` | integer | **required**. Number of rooms. |" in page
    assert "| `doors` | list of object | Doors, the front door first. |" in page
    assert "| `doors[].name` | string | **required** |" in page
    assert "[v1](#greeting-v1), [v2](#greeting-v2)" in page
    assert main(["docs", "--check", "--project", str(root)]) == 0
    (root / "docs/api.md").write_text("old")
    assert main(["docs", "--check", "--project", str(root)]) == 1
    assert "make docs" in capsys.readouterr().err


def test_api_reference_lists_fields_inside_lists_and_maps() -> None:
    port = {"type": "object", "properties": {"port": {"type": "integer", "description": "Which."}}}
    field = {"type": "object", "additionalProperties": {"type": "array", "items": port}}
    assert list(_render_rows({"properties": {"open": field}}, "")) == [
        "| `open` | map of list of object |  |\n",
        "| `open{}[].port` | integer | Which. |\n",
    ]


def test_image_that_no_container_has_is_an_error() -> None:
    pod = {"containers": [{"name": "manager", "image": "other:v1"}]}
    deployment = {"kind": "Deployment", "spec": {"template": {"spec": pod}}}
    with pytest.raises(
        ConfigError,
        match="no container has the image controller:latest, so it cannot be replaced "
        "with custom:v2",
    ):
        replace_image([deployment], "controller:latest", "custom:v2")


def test_manager_of_an_installer_is_found_by_its_name_or_labels(greeter: Path) -> None:
    project = Project.read(greeter)

    def deployment(name: str, **labels: str) -> dict[str, Any]:
        return {"kind": "Deployment", "metadata": {"name": name, "labels": labels}}

    other = deployment("a", **{"control-plane": "controller-manager"})
    renamed = deployment("b", **manager_labels(project), team="a")
    named = deployment("greeter-controller-manager")
    assert find_manager(project, [other, renamed]) is renamed
    assert find_manager(project, [other, named]) is named
    with pytest.raises(ConfigError, match="contains no Deployment with the name greeter-contr"):
        find_manager(project, [other])
    with pytest.raises(ConfigError, match=r"several Deployments with .*: b, greeter-contr"):
        find_manager(project, [renamed, named])


def test_installer_has_the_requested_image(greeter: Path, binaries: dict[str, Path]) -> None:
    root = greeter
    kubectl = str(binaries["kubectl"])
    assert (
        main(
            [
                "build-installer",
                "--project",
                str(root),
                "--image",
                "example.com/greeter:v7",
                "--kubectl",
                kubectl,
            ]
        )
        == 0
    )
    objects = list(yaml.safe_load_all((root / "dist/install.yaml").read_text()))
    (deployed,) = (item for item in objects if item["kind"] == "Deployment")
    assert (
        deployed["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/greeter:v7"
    )
    assert {"Namespace", "CustomResourceDefinition", "ClusterRole", "Service"} <= {
        item["kind"] for item in objects
    }
