"""The chart of a new operator, and what a project adds to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kubewright.builder.chart import build_chart
from kubewright.builder.cli import main
from kubewright.builder.project import Project
from kubewright.errors import ConfigError
from support.chart_values import find_values_without_effect, list_leaves, read_values, render
from support.helm import Helm, HelmFailed

EXTENSION = """
from kubewright.builder.chart.model import BOOLEAN, STRING, ChartExtension, Check, EgressRule, Value

CHART = ChartExtension(
    values=(
        Value("mail.server", "", "Mail server.", STRING, "mail.example.com"),
        Value("mail.quiet", False, "Send nothing.", BOOLEAN, True),
    ),
    checks=(Check("and .Values.mail.quiet .Values.mail.server", "mail.server is of no use"),),
    egress=(EgressRule("mail", (25,), "mail servers"),),
    args="- -mail={{ .Values.mail.server }}\\n",
    templates={"TEMPLATE": "# {{ .Values.mail.quiet }}\\n---\\napiVersion: v1\\nkind: ConfigMap\\n"
               "metadata:\\n  name: mail-{{ .Values.mail.quiet }}\\n"},
    notes="Mail is sent by {{ .Values.mail.server }}.",
    removal_notes="Send all mails first.",
    preparation="kubectl create secret generic mail",
    annotations={"artifacthub.io/category": "networking"},
)
NOT_A_CHART = 1
"""


def add_extension(root: Path, name: str = "CHART", template: str = "mail") -> None:
    (root / "tools.py").write_text(EXTENSION.replace("TEMPLATE", template))
    pyproject = root / "pyproject.toml"
    text = pyproject.read_text()
    pyproject.write_text(
        text.replace("components = []", f'components = []\nchart = "tools:{name}"')
    )


def test_every_value_of_a_new_operator_changes_the_output(greeter: Path, tmp_path: Path) -> None:
    add_extension(greeter)
    assert main(["helm", "--project", str(greeter)]) == 0
    chart, helm = greeter / "dist/chart", Helm(tmp_path)
    schema = json.loads((chart / "values.schema.json").read_text())
    paths = list(list_leaves(schema))
    assert {"mail.server", "networkPolicy.egress.mail.ports", "webhooks.caBundle"} <= set(paths)
    assert find_values_without_effect(helm, chart, read_values(greeter), paths) == []
    objects = render(helm, chart, {"mail.server": "x"})
    (deployment,) = (item for (kind, _, _), item in objects.items() if kind == "Deployment")
    assert "-mail=x" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    with pytest.raises(HelmFailed, match=r"mail\.server is of no use"):
        render(helm, chart, {"mail.server": "x", "mail.quiet": True})
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(chart))


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("controller:latest", ("", "", "")),
        ("greeter", ("greeter", "", "")),
        ("example.com:5000/greeter", ("example.com:5000/greeter", "", "")),
        ("example.com:5000/greeter:v1", ("example.com:5000/greeter", "v1", "")),
        ("greeter:v1@sha256:" + "0" * 64, ("greeter", "v1", "sha256:" + "0" * 64)),
    ],
)
def test_image_of_the_project_is_the_default(
    greeter: Path, image: str, parts: tuple[str, str, str]
) -> None:
    pyproject = greeter / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace("controller:latest", image))
    values = read_values(greeter)
    paths = ("image.repository", "image.tag", "image.digest")
    assert tuple(values[path].default for path in paths) == parts
    for path in paths:
        assert re.search(values[path].schema["pattern"], values[path].default)


def test_notes_and_readme_have_what_a_project_adds(greeter: Path) -> None:
    add_extension(greeter)
    project = Project.read(greeter)
    files = build_chart(project, project.load_declarations())
    notes = files["templates/NOTES.txt"]
    assert "Mail is sent by {{ .Values.mail.server }}." in notes
    assert notes.endswith("Send all mails first.\n")
    assert "\nkubectl create secret generic mail\nhelm install greeter CHART" in files["README.md"]


def test_own_ca_is_in_webhooks_and_conversions(greeter: Path, tmp_path: Path) -> None:
    assert main(["helm", "--project", str(greeter)]) == 0
    values = {"webhooks.existingSecret": "certificate", "webhooks.caBundle": "Q0E="}
    objects = render(Helm(tmp_path), greeter / "dist/chart", values)
    bundles = [
        webhook["clientConfig"]["caBundle"]
        for item in objects.values()
        for webhook in item.get("webhooks", [])
    ]
    conversions = [
        item["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
        for (kind, _, _), item in objects.items()
        if kind == "CustomResourceDefinition" and "conversion" in item["spec"]
    ]
    assert bundles
    assert conversions
    assert {*bundles, *conversions} == {"Q0E="}
    # The manager needs no permission for a CA of its own.
    assert not any("webhook-ca" in name for _, _, name in objects)


@pytest.mark.parametrize(
    ("name", "template", "message"),
    [
        ("NOT_A_CHART", "mail", "is not a ChartExtension"),
        ("MISSING", "mail", "cannot be loaded"),
        ("CHART", "manager", 'already has a template "manager"'),
    ],
)
def test_wrong_extensions_are_explained(
    greeter: Path, name: str, template: str, message: str
) -> None:
    add_extension(greeter, name, template)
    project = Project.read(greeter)
    with pytest.raises(ConfigError, match=message):
        build_chart(project, project.load_declarations())


def test_two_values_of_one_name_are_rejected(greeter: Path) -> None:
    add_extension(greeter)
    tools = greeter / "tools.py"
    tools.write_text(tools.read_text().replace('"mail.quiet", False', '"replicas", False'))
    project = Project.read(greeter)
    with pytest.raises(ConfigError, match='two values with the name "replicas"'):
        build_chart(project, project.load_declarations())


def test_check_finds_a_stale_chart(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["helm", "--project", str(greeter)]
    assert main([*command, "--check"]) == 1
    assert not (greeter / "dist").exists()
    assert main(command) == 0
    assert main([*command, "--check"]) == 0
    with (greeter / "dist/chart/values.yaml").open("a") as file:
        file.write("# edited\n")
    assert main([*command, "--check"]) == 1
    assert "-# edited" in capsys.readouterr().err
