"""`init` and `create api`: what they write, and what they reject."""

from __future__ import annotations

import ast
import keyword
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubewright.__main__ import main as run_entry_point
from kubewright.builder.cli import kubewright, main
from kubewright.builder.names import build_resource_names, check_kind, check_version, qualify_group
from kubewright.builder.scaffold.python_edit import add_import, add_statement, set_kind_argument
from kubewright.errors import ConfigError
from support.golden_projects import GOLDEN, read_project_files

from .builder_commands import create_api, create_webhook, read_project_bytes


def test_kind_has_a_module_a_test_a_sample_and_a_line_in_main(project: Path) -> None:
    before = read_project_files(project)
    assert create_api(project, "--short-name", "gr") == 0
    after = read_project_files(project)
    assert {
        path for path in after if path not in before and not path.startswith("config/rbac")
    } == {
        "src/greeter/kinds/greeting.py",
        "tests/kinds/test_greeting.py",
        "config/samples/demo_v1_greeting.yaml",
        "config/samples/README.md",
        "config/crd/bases/demo.example.com_greetings.yaml",
    }
    added = [
        line
        for line in after["src/greeter/main.py"].splitlines()
        if line not in before["src/greeter/main.py"].splitlines()
    ]
    assert added == [
        "from .kinds.greeting import GreetingController",
        "    manager.add(GreetingController())",
    ]
    crd = yaml.safe_load(after["config/crd/bases/demo.example.com_greetings.yaml"])
    assert crd["spec"]["names"]["shortNames"] == ["gr"]
    assert tomllib.loads(after["pyproject.toml"])["tool"]["kubewright"]["resources"] == [
        {
            "group": "demo.example.com",
            "version": "v1",
            "kind": "Greeting",
            "plural": "greetings",
            "path": "greeter.kinds.greeting:Greeting",
        }
    ]


def test_fields_of_the_command_line_are_in_the_crd_and_the_sample(project: Path) -> None:
    options = [
        "--spec",
        "cpu:int!",
        "--spec",
        "template:str",
        "--status",
        "phase:str",
        "--cluster-scoped",
        "--plural",
        "grps",
    ]
    assert create_api(project, *options, kind="VmGroup") == 0
    crd = yaml.safe_load((project / "config/crd/bases/demo.example.com_grps.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert schema["spec"]["required"] == ["cpu"]
    assert schema["spec"]["properties"]["cpu"]["type"] == "integer"
    assert "phase" in schema["status"]["properties"]
    assert crd["spec"]["scope"] == "Cluster"
    sample = yaml.safe_load((project / "config/samples/demo_v1_vmgroup.yaml").read_text())
    assert sample["spec"] == {"cpu": 1, "template": "example"}


def test_nested_types_descriptions_and_defaults_are_in_the_crd(project: Path) -> None:
    options = [
        *("--description", "An application."),
        *("--spec", "image:str! Image to run."),
        *("--spec", "env:map[str]"),
        *("--spec", "ports:list[Port]"),
        *("--type", "Port=name:str!,port:int32=80 Number, at most 65535.,proto:enum[TCP,UDP]?"),
        *("--spec", "limit:int-or-string=25%"),
        *("--spec", "replicas:int32?"),
        *("--status", "since:datetime"),
    ]
    assert create_api(project, *options, kind="App") == 0
    crd = yaml.safe_load((project / "config/crd/bases/demo.example.com_apps.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"] == "An application."
    assert schema["properties"]["spec"] == {
        "type": "object",
        "description": "The desired state.",
        "properties": {
            "image": {"type": "string", "description": "Image to run."},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "port": {
                            "type": "integer",
                            "format": "int32",
                            "description": "Number, at most 65535.",
                            "default": 80,
                        },
                        "proto": {"type": "string", "enum": ["TCP", "UDP"]},
                    },
                    "required": ["name"],
                },
            },
            "limit": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "default": "25%",
            },
            "replicas": {"type": "integer", "format": "int32"},
        },
        "required": ["image"],
    }
    sample = yaml.safe_load((project / "config/samples/demo_v1_app.yaml").read_text())
    assert sample["spec"] == {
        "image": "example",
        "env": {"example": "example"},
        "ports": [{"name": "example", "port": 80, "proto": "TCP"}],
        "limit": "25%",
        "replicas": 1,
    }


def test_description_of_a_kind_is_that_of_its_other_versions(project: Path) -> None:
    assert create_api(project, "--description", "Greets by name.") == 0
    assert create_api(project, version="v2") == 0
    crd = yaml.safe_load((project / "config/crd/bases/demo.example.com_greetings.yaml").read_text())
    schemas = [version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"]]
    assert [schema["description"] for schema in schemas] == ["Greets by name."] * 2


def test_no_placeholder_text_reaches_a_crd(project: Path) -> None:
    """Every description is either given on the command line, or true for every kind."""
    assert create_api(project) == 0
    assert create_api(project, version="v2") == 0
    text = (project / "config/crd/bases/demo.example.com_greetings.yaml").read_text()
    versions = yaml.safe_load(text)["spec"]["versions"]
    for version in versions:
        schema = version["schema"]["openAPIV3Schema"]
        assert "description" not in schema
        spec, status = schema["properties"]["spec"], schema["properties"]["status"]
        assert spec["description"] == "The desired state."
        assert status["description"] == "The observed state."
        assert spec["properties"] == {"foo": {"type": "string"}}
        assert status["properties"]["echo"] == {"type": "string"}


def test_kind_without_a_controller_has_only_types_and_a_crd(project: Path) -> None:
    assert create_api(project, "--controller=false") == 0
    text = (project / "src/greeter/kinds/greeting.py").read_text()
    assert "Controller" not in text
    assert (project / "config/crd/bases/demo.example.com_greetings.yaml").exists()
    assert "greetings" not in (project / "config/rbac/role.yaml").read_text()
    assert not (project / "tests/kinds").exists()


def test_plural_follows_the_rule_of_kubebuilder(project: Path) -> None:
    assert create_api(project, kind="HostInfo", group="topology") == 0
    assert (project / "config/crd/bases/topology.example.com_hostinfoes.yaml").exists()


def test_dry_run_shows_the_diff_and_writes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_project_bytes(project)
    assert create_api(project, "--dry-run") == 0
    output = capsys.readouterr().out
    assert "+++ b/src/greeter/kinds/greeting.py" in output
    assert "+    manager.add(GreetingController())" in output
    assert "+++ b/config/crd/bases/demo.example.com_greetings.yaml" in output
    assert read_project_bytes(project) == before


def test_dry_run_of_init_does_not_create_the_folder(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new"), "--domain", "example.com", "--dry-run"]) == 0
    assert not (tmp_path / "new").exists()


REJECTED_OPTIONS = [
    (["--kind", "greeting"], "such as Greeting"),
    (["--kind", "my-kind"], "such as MyKind"),
    (["--kind", "Class"], "reserved"),
    (["--kind", "None"], "reserved"),
    (["--kind", "Controller"], "reserved"),
    (["--kind", "Path"], "reserved"),
    (["--kind", "Request"], "reserved"),
    (["--kind", "A" * 60], "letters and digits"),
    (["--kind", "Gr\u00fc\u00dfe"], "letters and digits"),
    (["--version", "1"], "v1alpha1"),
    (["--version", "v1gamma1"], "v1alpha1"),
    (["--version", "v0"], "v1alpha1"),
    (["--group", "Demo"], "DNS name"),
    (["--group", "demo_x"], "DNS name"),
    (["--group", "apps.k8s.io"], "belongs to Kubernetes"),
    (["--plural", "Greetings"], "plural"),
    (["--short-name", "GR"], "short name"),
    (["--short-name", "1x"], "begin with a letter"),
    (["--resource", "false"], "watches"),
    (["--spec", "class:str"], "reserved word"),
    (["--spec", "cpu:quantity"], "must be one of str, int"),
    (["--spec", "a:Column", "--type", "Column=a:str"], "another class"),
    (["--spec", "a:GreetingSpec", "--type", "GreetingSpec=a:str"], "another class"),
    (["--description", 'the "last"'], "docstring"),
    (["--spec", "a:str", "--spec", "a:int"], "twice"),
    (["--status", "conditions:str"], "every status already has"),
    (["--status", "condition:str"], "every status already has"),
    (["--spec", "str:str", "--spec", "name:str"], "it is the name of a type"),
    (["--status", "phase:str!"], "cannot be required"),
]


@pytest.mark.parametrize(
    ("options", "message"),
    REJECTED_OPTIONS,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_names_are_rejected(
    project: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    before = read_project_bytes(project)
    assert create_api(project, *options) == 1
    assert message in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_existing_kind_and_existing_plural_are_rejected(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_api(project) == 0
    before = read_project_bytes(project)
    assert create_api(project) == 1
    assert "already" in capsys.readouterr().err
    assert create_api(project, group="other") == 1
    assert create_api(project, "--plural", "greetings", kind="Hello") == 1
    assert "--plural" in capsys.readouterr().err
    assert read_project_bytes(project) == before


def test_existing_file_is_overwritten_only_with_force(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    existing = project / "src/greeter/kinds/greeting.py"
    existing.write_text("# by hand\n")
    before = read_project_bytes(project)
    assert create_api(project) == 1
    error = capsys.readouterr().err
    assert "src/greeter/kinds/greeting.py" in error
    assert "--force" in error
    assert read_project_bytes(project) == before
    assert create_api(project, "--force") == 0
    assert "class Greeting(" in existing.read_text()


def test_import_error_is_reported_and_nothing_is_written(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "src/greeter/main.py").write_text(
        (project / "src/greeter/main.py")
        .read_text()
        .replace("import Manager", "import Mangler, Manager")
    )
    before = read_project_bytes(project)
    assert create_api(project) == 1
    error = capsys.readouterr().err
    assert "nothing was written" in error
    assert "Mangler" in error
    assert read_project_bytes(project) == before


REJECTED_INIT_OPTIONS = [
    (["--domain", "Example"], "DNS name"),
    (["--domain", "example.com", "--project-name", "9lives"], "begin with a letter"),
    (["--domain", "example.com", "--project-name", "class"], "the name is reserved"),
    (["--domain", "example.com", "--project-name", "json"], "already exists"),
    (["--domain", "example.com", "--project-name", "yaml"], "already exists"),
    (["--domain", "example.com", "--project-name", "x" * 29], "at most 28"),
]


@pytest.mark.parametrize(("options", "message"), REJECTED_INIT_OPTIONS)
def test_invalid_project_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["init", str(tmp_path / "new"), *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_folder_that_is_not_empty_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["init", str(tmp_path), "--project-name", "x", "--domain", "example.com"]) == 1
    assert "thesis.txt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_repository_without_files_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    options = ["--project-name", "x", "--domain", "example.com", "--license", "none"]
    assert main(["init", str(tmp_path), *options]) == 0
    assert not (tmp_path / "LICENSE").exists()


def test_missing_option_is_named_without_a_terminal(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["create", "api", "--project", str(project), "--group", "demo", "--version", "v1"])
        == 2
    )
    assert "--kind is required when standard input is not a terminal" in capsys.readouterr().err


def test_user_is_asked_again_until_the_answer_is_valid(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["demo", "", "greeting", "Greeting"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda prompt: next(answers))
    assert main(["create", "api", "--project", str(project)]) == 0
    assert "such as Greeting" in capsys.readouterr().out
    assert (project / "src/greeter/kinds/greeting.py").exists()


def test_create_needs_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert create_api(tmp_path) == 1
    assert "kubewright init" in capsys.readouterr().err


def test_every_command_has_an_example() -> None:
    def list_commands(command: click.Command) -> list[click.Command]:
        if not isinstance(command, click.Group):
            return [command]
        return [leaf for child in command.commands.values() for leaf in list_commands(child)]

    assert len(list_commands(kubewright)) >= 3
    for command in list_commands(kubewright):
        text = command.get_help(click.Context(command, terminal_width=400))
        assert re.search(r"^  Examples:\n    kubewright ", text, re.MULTILINE), text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_KUBEWRIGHT_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit) as exited:
        main([])
    assert exited.value.code == 0
    assert "_KUBEWRIGHT_COMPLETE" in capsys.readouterr().out


def test_names_that_generated_code_imports_are_reserved() -> None:
    trees = [ast.parse(path.read_text()) for path in (GOLDEN / "greeter").rglob("kinds/*.py")]
    imports = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    ]
    # Types of children are checked against the kind that has them.
    own = ("greeter", "kubewright.api.")
    external = [node for node in imports if not (node.module or "").startswith(own)]
    imported = {name.name for node in external for name in node.names if name.name[0].isupper()}
    assert len(imported) > 15
    arguments = {
        node.arg.capitalize()
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.arg)
    }
    for name in imported | arguments - {
        "Greeting",
        "House",
        "Site",
        "Pod",
        "Hub",
        "Spoke",
        "Installed",
        "Client",
        "Namespace",
    }:
        with pytest.raises(ConfigError, match="reserved"):
            check_kind(name)


def test_kind_named_test_something_has_tests_that_pytest_collects(
    project: Path,
) -> None:
    assert create_api(project, kind="TestRun") == 0
    assert create_webhook(project, "--defaulting", "--validation", kind="TestRun") == 0
    options = ["--collect-only", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "tests/kinds"]
    process = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout


def test_valid_names() -> None:
    assert [check_kind(kind) for kind in ("HostInfo", "VM", "A1")] == ["HostInfo", "VM", "A1"]
    assert [check_version(version) for version in ("v1", "v2beta3", "v10alpha1")] == [
        "v1",
        "v2beta3",
        "v10alpha1",
    ]
    assert qualify_group("topology", "corinternal.com") == "topology.corinternal.com"
    assert (
        qualify_group("vm.codeconnect.vmworld.com", "example.com") == "vm.codeconnect.vmworld.com"
    )
    assert qualify_group("demo", "myk8s.io") == "demo.myk8s.io"
    assert build_resource_names("a", "b.c", "v1", "Box").plural == "boxes"


@given(st.text(st.characters(codec="utf-8"), max_size=12))
def test_valid_kind_is_a_class_name_and_a_module_name(text: str) -> None:
    try:
        check_kind(text)
    except ConfigError:
        return
    assert text.isidentifier()
    assert text[0].isupper()
    assert not keyword.iskeyword(text.lower())


MAIN_SOURCE = '''"""Doc."""

from kubewright import Manager

from .kinds.b import BController


def build(mgr: Manager, settings: object) -> None:
    """All."""
    mgr.add(
        BController()
    )


class C:
    """Doc."""

    x = 1
'''


def test_imports_stay_sorted_and_statements_are_appended() -> None:
    text = add_import(
        add_import(MAIN_SOURCE, ".kinds.a", "AController", "m"), ".kinds.c", "CController", "m"
    )
    lines = [line for line in text.splitlines() if line.startswith("from .")]
    assert lines == [f"from .kinds.{x.lower()} import {x}Controller" for x in "ABC"]
    assert add_import(text, ".kinds.a", "AController", "m") == text
    assert "    )\n    mgr.add(A())\n" in add_statement(text, "build", "{0}.add(A())", "m")


def test_statement_is_inserted_before_return() -> None:
    assert (
        add_statement("def build(m):\n    return None\n", "build", "{0}.add(A())", "m")
        == "def build(m):\n    m.add(A())\n    return None\n"
    )


def test_argument_is_appended_to_a_call_of_several_lines() -> None:
    text = '@kind(\n    "\u00e4/v1",\n    columns=[1],\n)\nclass C:\n    pass\n'
    added = set_kind_argument(text, "C", "storage", "False", "m")
    assert added == text.replace("columns=[1],", "columns=[1], storage=False,")
    assert set_kind_argument(added, "C", "storage", "True", "m") == added.replace(
        "storage=False", "storage=True"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(:", "is not valid Python"),
        ("x = 1\n", "has no function build"),
        ("def build(): ...\n", "has no function build"),
    ],
)
def test_main_without_build_names_what_to_add(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        add_statement(text, "build", "{0}.add(A())", "main.py")


def test_without_click_the_command_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("kubewright.builder")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "click", None)
    assert run_entry_point() == 1
    message = capsys.readouterr().err
    assert "pip install 'kubewright[builder]'" in message
    assert "In a clone or a generated project: make setup" in message
