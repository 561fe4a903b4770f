from __future__ import annotations

import http.server
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane
from kubewright.yaml_text import to_yaml

from .builder_commands import commit_project, run_manifests
from .typegen.generated_modules import new_crd

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {"size": {"type": "integer", "format": "int32"}, "from": {"type": "string"}},
}
CRD = new_crd(spec_schema=SPEC)
FOREIGN_CONTROLLER = """
from kubewright import Controller
from ..external.example_v1_widget import Widget

class WidgetController(Controller[Widget]):
    async def reconcile(self, widget: Widget) -> None:
        pass
"""


def version_of(name: str, **keys: Any) -> dict[str, Any]:
    version: dict[str, Any] = CRD["spec"]["versions"][0] | {"name": name} | keys
    return version


@pytest.fixture
def crd_file(tmp_path: Path) -> Path:
    file = tmp_path / "crds.yaml"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    file.write_text(to_yaml(namespace, CRD))
    return file


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serve(content: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/crds.yaml" else 404)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_file_becomes_a_module(
    crd_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(crd_file), "--output", str(tmp_path / "out")]) == 0
    assert "from example_v1_widget import Widget" in capsys.readouterr().out
    # The folder is not in a package, so it does not become one.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["example_v1_widget.py"]
    module = load(tmp_path / "out/example_v1_widget.py")
    widget = module.Widget(spec=module.WidgetSpec(size=2, from_="here"))
    assert widget.encode()["spec"] == {"size": 2, "from": "here"}


def test_a_project_gets_a_package_and_no_crd(tmp_path: Path, greeter: Path) -> None:
    crd = new_crd(spec_schema=SPEC)
    status = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    crd_file = tmp_path / "crds.yaml"
    crd_file.write_text(to_yaml(crd))
    commit_project(greeter)
    assert main(["import", str(crd_file), "--project", str(greeter)]) == 0
    package = greeter / "src/greeter"
    assert (package / "external/__init__.py").read_text() == ""
    assert main(["import", str(crd_file), "--project", str(greeter)]) == 0, "is replaced"
    (test_crd,) = yaml.safe_load_all((greeter / "tests/crds/widgets.example.com.yaml").read_text())
    assert test_crd["spec"] == crd["spec"]
    (package / "kinds/widget.py").write_text(FOREIGN_CONTROLLER)
    main_file = package / "main.py"
    source = main_file.read_text().replace(
        "from .kinds", "from .kinds.widget import WidgetController\nfrom .kinds", 1
    )
    main_file.write_text(
        source.replace(
            "    manager.add(", "    manager.add(WidgetController())\n    manager.add(", 1
        )
    )
    process = run_manifests(greeter, "--force")
    assert process.returncode == 0, process.stderr
    assert not list((greeter / "config/crd").rglob("*widget*"))
    assert "widgets" in (greeter / "config/rbac/role.yaml").read_text()


def test_crd_for_tests_has_nothing_of_a_cluster(tmp_path: Path, greeter: Path) -> None:
    approval = {"api-approved.kubernetes.io": "https://example.com"}
    crd = new_crd(spec_schema=SPEC, conversion={"strategy": "Webhook", "webhook": {}})
    crd["metadata"] |= {"uid": "1", "annotations": {**approval, "other": "x"}}
    old = {**new_crd(spec_schema=SPEC, group="old.example.com", version="v1", versions=[])}
    old["apiVersion"] = "apiextensions.k8s.io/v1beta1"
    file = tmp_path / "crds.yaml"
    file.write_text(to_yaml(crd | {"status": {"storedVersions": ["v1"]}}, old))
    assert main(["import", str(file), "--project", str(greeter)]) == 0
    # The API server does not accept the first API version of CRDs any more.
    (test_file,) = (greeter / "tests/crds").iterdir()
    document = yaml.safe_load(test_file.read_text())
    assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert document["metadata"] == {"name": "widgets.example.com", "annotations": approval}
    assert "conversion" not in document["spec"]


def test_importing_again_replaces_only_what_was_generated(
    crd_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["import", str(crd_file), "--output", str(tmp_path / "out")]
    assert main(command) == 0
    module = tmp_path / "out/example_v1_widget.py"
    module.write_text(f"{module.read_text()}# edited\n")
    assert main(command) == 0
    assert "# edited" not in module.read_text()
    module.write_text("own = 1\n")
    assert main(command) == 1
    assert "already exist and differ" in capsys.readouterr().err
    assert module.read_text() == "own = 1\n"
    assert main([*command, "--force"]) == 0
    assert "class Widget(" in module.read_text()


def test_dry_run_writes_nothing(
    crd_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(crd_file), "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "+class Widget(" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_versions_can_be_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "crds.yaml"
    versions = [version_of("v1"), version_of("v2", storage=False, served=False)]
    file.write_text(to_yaml(new_crd(versions)))
    command = ["import", str(file), "--output", str(tmp_path / "out")]
    assert main([*command, "--version", "v2"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["example_v2_widget.py"]
    assert main([*command, "--version", "v3"]) == 1
    assert "no CRD has the version v3; they have v1, v2" in capsys.readouterr().err
    assert main(command) == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_equal_kinds_of_two_groups_get_two_modules(tmp_path: Path) -> None:
    file = tmp_path / "crds.yaml"
    file.write_text(to_yaml(CRD, new_crd(group="example.org", spec_schema=SPEC)))
    assert main(["import", str(file), "--output", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "example_org_v1_widget.py",
        "example_v1_widget.py",
    ]


@pytest.mark.parametrize("groups", [("example.com", "example.org"), ("example.org", "example.com")])
def test_name_of_a_module_does_not_depend_on_the_order(
    tmp_path: Path, groups: tuple[str, str]
) -> None:
    files = []
    for group in groups:
        files.append(tmp_path / f"{group}.yaml")
        files[-1].write_text(to_yaml(new_crd(group=group, spec_schema=SPEC)))
    output = tmp_path / "out"
    assert main(["import", *map(str, files), "--output", str(output)]) == 0
    assert '"example.com/v1"' in (output / "example_v1_widget.py").read_text()
    assert '"example.org/v1"' in (output / "example_org_v1_widget.py").read_text()


def test_import_keeps_the_module_of_another_group(tmp_path: Path) -> None:
    output = tmp_path / "out"
    contents = []
    # The third time, the module with the long name is replaced.
    for group in ("example.org", "example.com", "example.com"):
        file = tmp_path / "crds.yaml"
        file.write_text(to_yaml(new_crd(group=group, spec_schema=SPEC)))
        assert main(["import", str(file), "--output", str(output)]) == 0
        contents.append({path.name: path.read_text() for path in output.iterdir()})
    assert contents[1].keys() == {"example_v1_widget.py", "example_com_v1_widget.py"}
    assert contents[1]["example_v1_widget.py"] == contents[0]["example_v1_widget.py"]
    assert contents[2] == contents[1]


def test_groups_that_differ_only_in_punctuation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "crds.yaml"
    groups = ("a.b.com", "a.b-com", "a.b--com")
    file.write_text(to_yaml(*(new_crd(group=group, spec_schema=SPEC) for group in groups)))
    assert main(["import", str(file), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "needs the module a_b_com_v1_widget.py, which has the types of" in error
    assert not (tmp_path / "out").exists()


def test_output_names_the_class_of_the_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "crds.yaml"
    schema = {"type": "object", "properties": {"Widget": {"type": "string"}}}
    file.write_text(to_yaml(new_crd(spec_schema=schema)))
    assert main(["import", str(file), "--output", str(tmp_path / "out")]) == 0
    assert "from example_v1_widget import WidgetKind\n" in capsys.readouterr().out
    assert load(tmp_path / "out/example_v1_widget.py").WidgetKind.definition.name == "Widget"


def test_a_list_of_crds_as_kubectl_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "crds.yaml"
    file.write_text(to_yaml({"apiVersion": "v1", "kind": "List", "items": [CRD]}))
    assert main(["import", str(file), "--output", str(tmp_path / "out")]) == 0


def test_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output", str(tmp_path / "out")]
    with serve(to_yaml(CRD).encode()) as url:
        assert main(["import", f"{url}/crds.yaml", *output]) == 0
        assert main(["import", f"{url}/other.yaml", *output]) == 1
        assert "other.yaml cannot be downloaded: Not Found" in capsys.readouterr().err
    assert main(["import", f"{url}/crds.yaml", *output]) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert (tmp_path / "out/example_v1_widget.py").exists()
    with serve(b"<!DOCTYPE html><html></html>") as url:
        assert main(["import", f"{url}/crds.yaml", *output]) == 1
    assert "is a web page" in capsys.readouterr().err
    with serve(b"\xff\xfe") as url:
        assert main(["import", f"{url}/crds.yaml", *output]) == 1
    assert "is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no CustomResourceDefinition"),
        ("a: [", "is not valid YAML"),
        ("{{ if .Values.crds }}", "is not valid YAML"),
        ("[1, 2]", "contains no CustomResourceDefinition"),
        ("kind: CustomResourceDefinition", "missing required field `spec`"),
        (
            "kind: CustomResourceDefinition\nspec: {group: a, names: x, versions: []}",
            "Expected `object`, got `str` - at `$.spec.names`",
        ),
        (
            "kind: CustomResourceDefinition\n"
            "spec: {group: a.com, names: {kind: A, plural: as}, versions: []}",
            "as.a.com has no versions",
        ),
        (
            to_yaml(new_crd(group="a\nimport os  #")),
            "has a CustomResourceDefinition with the name 'a\\nimport os  #'",
        ),
        (
            to_yaml(new_crd(spec_schema={"type": "object", "properties": {"a": {True: 1}}})),
            "crds.yaml: the schema of widgets.example.com has the key True, which is not a string",
        ),
    ],
)
def test_what_is_not_a_crd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = tmp_path / "crds.yaml"
    file.write_text(text)
    assert main(["import", str(file), "--output", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(tmp_path / "none.yaml"), "--output", str(tmp_path)]) == 1
    assert "none.yaml does not exist" in capsys.readouterr().err


def test_outside_of_a_project(
    crd_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(crd_file), "--project", str(tmp_path)]) == 1
    assert "or choose a folder with --output" in capsys.readouterr().err


def test_nothing_to_import(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import"]) == 2
    assert "specify a FILE or URL" in capsys.readouterr().err


def test_real_from_cluster(control_plane: ControlPlane, tmp_path: Path, crd_file: Path) -> None:
    control_plane.apply(crd_file)
    name = "widgets.example.com"
    control_plane.wait_for_crds(name)
    # In a process of its own, because the command runs an event loop.
    command = [sys.executable, "-m", "kubewright", "import", "--output", str(tmp_path / "out")]
    kubeconfig = ["--kubeconfig", str(control_plane.admin_kubeconfig)]
    process = subprocess.run(
        [*command, *kubeconfig, "--from-cluster", name], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert load(tmp_path / "out/example_v1_widget.py").WidgetSpec(size=1).size == 1
    process = subprocess.run(
        [*command, *kubeconfig, "--from-cluster", "nones.example.com"],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert 'the cluster has no CRD "nones.example.com"' in process.stderr
    control_plane.kubectl("delete", "crd", name)
