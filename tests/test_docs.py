"""What must hold of every Markdown page: links and anchors lead somewhere, blocks are run or say why not, and generated pages say all."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from hack.docgen import ROOT
from hack.docgen.conditions import (
    APPLICATION_PACKAGE,
    RUNTIME_PACKAGE,
    check_all_reasons_listed,
    unique_messages,
)
from hack.docgen.drawing import Arrow, Box, Drawing
from hack.docgen.markdown import anchors, fenced_blocks, links, slug
from hack.docgen.picture import ARCHITECTURE
from hack.docgen.source_messages import CallSignature, ReasonMessage, find_messages
from hack.docgen.website import copy_pages, list_pages
from kubewright.flags import collect_options
from vsphere_operators.settings.flags import Settings
from vsphere_operators.vsphere import privileges

PAGES = list_pages()
EXTERNAL_URL = re.compile(r"[a-z]+://|mailto:")
# Tutorials are walked by tests/real/test_tutorial.py, with marks of their own.
PAGES_WITHOUT_TUTORIALS = [page for page in PAGES if not str(page).startswith("docs/tutorial/")]
LANGUAGES = {"", "text", "sh", "python", "yaml"}


def read_page(page: Path) -> str:
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [
        f"line {line}: {target}: {why}"
        for line, target in links(read_page(page))
        if (why := find_link_problem(page, target))
    ] == []


def find_link_problem(page: Path, target: str) -> str:
    """Why a link leads nowhere, "" if it does not."""
    if EXTERNAL_URL.match(target):
        return ""
    path, _, anchor = target.partition("#")
    there = (ROOT / page.parent / path).resolve() if path else ROOT / page
    if not there.is_relative_to(ROOT) or not there.exists():
        return "there is no such file"
    if there.is_dir():
        return "a folder: link to a file in it, so that it works on the site too"
    if anchor and (there.suffix != ".md" or anchor not in anchors(there.read_text())):
        return f"no such heading in {there.relative_to(ROOT)}"
    return ""


def test_a_link_that_leads_nowhere_is_found() -> None:
    here = Path("docs/README.md")
    assert find_link_problem(here, "nowhere.md") == "there is no such file"
    assert find_link_problem(here, "../../etc/passwd") == "there is no such file"
    assert (
        find_link_problem(here, "howto")
        == "a folder: link to a file in it, so that it works on the site too"
    )
    assert find_link_problem(here, "../README.md#no-such-thing") == "no such heading in README.md"
    assert (
        find_link_problem(here, "#tutorials")
        == find_link_problem(here, "https://example.com/x")
        == ""
    )


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_every_block_is_of_a_sort_that_is_run_or_says_why_not(page: Path) -> None:
    unknown = [
        f"line {block.line}: {block.language}"
        for block in fenced_blocks(read_page(page))
        if block.language not in LANGUAGES
    ]
    assert unknown == []
    assert re.findall(r"^ +```.*$", read_page(page), re.MULTILINE) == [], (
        "the site's Markdown does not know an indented fence"
    )
    marks = re.findall(r"^ *<!-- not run:", read_page(page), re.MULTILINE)
    assert len(marks) == sum(bool(block.skip_reason) for block in fenced_blocks(read_page(page))), (
        "a mark has to stand directly above its block"
    )


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_every_overlay_that_a_page_shows_is_rendered_by_it(page: Path) -> None:
    found = fenced_blocks(read_page(page))
    folders = [
        str(Path(block.argument).parent)
        for block in found
        if block.argument.endswith("kustomization.yaml")
    ]
    commands = "".join(
        block.text for block in found if block.language == "sh" and not block.skip_reason
    )
    assert [
        folder for folder in folders if not re.search(rf"(kustomize|-k) {folder}\b", commands)
    ] == []


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_every_overlay_that_a_page_shows_is_deployed_by_it_with_an_image(page: Path) -> None:
    found = fenced_blocks(read_page(page))
    folders = [
        str(Path(block.argument).parent)
        for block in found
        if block.argument.endswith("kustomization.yaml")
    ]
    commands = "".join(block.text for block in found if block.language == "sh")
    command = (
        ".venv/bin/kubewright build-installer --overlay {} --output - \\\n"
        "  --image example.com/vsphere-operators:v1 | kubectl apply --server-side -f -\n"
    )
    assert [folder for folder in folders if command.format(folder) not in commands] == []


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_no_command_sets_the_image_back_or_takes_it_from_the_next_apply(page: Path) -> None:
    commands = "".join(
        block.text for block in fenced_blocks(read_page(page)) if block.language == "sh"
    )
    assert (
        re.findall(
            r"^.*(?:apply .*-k config/(?:default|overlays)|kubectl .*set image).*$",
            commands,
            re.MULTILINE,
        )
        == []
    )


@pytest.mark.parametrize("page", ["docs/howto/install.md", "docs/howto/local-cluster.md"])
def test_credentials_are_there_before_the_manager_is(page: str) -> None:
    assert re.findall(
        r"namespace\.yaml|create secret|^make .*deploy ", read_page(Path(page)), re.MULTILINE
    )[:3] == [
        "namespace.yaml",
        "create secret",
        *re.findall(r"^make .*deploy ", read_page(Path(page)), re.MULTILINE),
    ]


@pytest.mark.parametrize("page", ["docs/howto/install.md", "docs/howto/deploy.md"])
def test_the_doctor_in_the_pod_is_told_what_the_deployment_tells_the_manager(page: str) -> None:
    deployment = yaml.safe_load((ROOT / "config/manager/manager.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    text = read_page(Path(page)).replace("\\\n", "")
    (flags,) = re.findall(r"/manager doctor ([^`\n]+)", text)
    assert flags.split() == container["args"]


def test_readme_picture_shows_every_kind() -> None:
    assert "](docs/pictures/live-view.svg)" in read_page(Path("README.md"))
    root = ElementTree.parse(ROOT / "docs/pictures/live-view.svg").getroot()
    shown = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    kinds = ("HOSTINFO", "VMINFO", "FCDINFO", "GPUINFO", "VMGROUP", "MYCUSTOMRESOURCE")
    assert [kind for kind in kinds if kind not in shown] == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("From clone to a merged kind", "from-clone-to-a-merged-kind"),
        ("/metrics", "metrics"),
        ("`manager doctor`", "manager-doctor"),
        ("How fast it is, and why", "how-fast-it-is-and-why"),
        ("spec of HostInfo v1", "spec-of-hostinfo-v1"),
        (
            "Why a node is refused, in `status.refused` of GPUInfo",
            "why-a-node-is-refused-in-statusrefused-of-gpuinfo",
        ),
        ("See [the bench](bench.md) too", "see-the-bench-too"),
    ],
)
def test_anchors_are_githubs(heading: str, anchor: str) -> None:
    assert slug(heading) == slug(heading, "-") == anchor
    assert anchors(f"# {heading}\n\n```sh\n# no heading\n```\n\n## {heading}\n") == {
        anchor,
        f"{anchor}-1",
    }


def test_links_in_code_are_none() -> None:
    page = "[a](a.md) `[b](b.md)` ![c](c.svg)\n```text\n[d](d.md)\n```\n<!-- [e](e.md) -->\n[f](<f.md>)\n"
    assert list(links(page)) == [(1, "a.md"), (1, "c.svg"), (6, "f.md")]


def test_a_block_knows_its_line_its_word_and_why_it_is_not_run() -> None:
    first, second = fenced_blocks(
        "one\n\n```yaml a/b.yaml\nx: 1\n```\n<!-- not run: it needs a cluster -->\n```sh\nls\n```\n"
    )
    assert (first.language, first.argument, first.text, first.line, first.skip_reason) == (
        "yaml",
        "a/b.yaml",
        "x: 1\n",
        3,
        "",
    )
    assert (second.language, second.text, second.skip_reason) == (
        "sh",
        "ls\n",
        "it needs a cluster",
    )


def test_the_reference_lists_every_flag_and_variable() -> None:
    page = read_page(Path("docs/reference/flags.md"))
    flags = [f"`-{name}`" for option in collect_options(Settings) for name in option.names]
    variables = [f"`{option.flag.env}`" for option in collect_options(Settings) if option.flag.env]
    assert [each for each in flags + variables if each not in page] == []


def test_the_reference_lists_every_metric_that_any_module_declares() -> None:
    sources = (
        path.read_text()
        for package in (APPLICATION_PACKAGE, RUNTIME_PACKAGE)
        for path in (ROOT / package).rglob("*.py")
    )
    declared = {
        name
        for source in sources
        for name in re.findall(r'\.new_(?:counter|gauge|histogram)\(\s*"(\w+)"', source)
    }
    page = read_page(Path("docs/reference/metrics.md"))
    assert len(declared) > 30
    assert {each for each in declared if f"`{each}`" not in page} == set()


def test_every_reason_that_a_test_asserts_is_in_the_reference() -> None:
    """The tests see reasons as they come out of the manager; the page reads them from the source."""
    asserted = {
        reason
        for path in (ROOT / "tests").rglob("test_*.py")
        for reason in re.findall(r"""(?:reason|\["reason"\]) == "([A-Z]\w+)\"""", path.read_text())
    }
    page = read_page(Path("docs/reference/conditions.md")) + read_page(
        Path("docs/reference/errors.md")
    )
    assert len(asserted) > 10
    assert {each for each in asserted if f"`{each}`" not in page} == set()


def test_the_page_of_installing_has_every_privilege() -> None:
    wanted = (
        *privileges.READ_PRIVILEGES,
        *privileges.FOLDER_PRIVILEGES,
        *privileges.TEMPLATE_PRIVILEGES,
        *privileges.RESOURCE_POOL_PRIVILEGES,
        *privileges.DATASTORE_PRIVILEGES,
    )
    page = read_page(Path("docs/howto/install.md"))
    assert [each for each in wanted if f"`{each}`" not in page] == []
    assert set(
        re.findall(r"`((?:Virtual|Folder|Resource|Datastore|System)\w*\.[\w.]+)`", page)
    ) == set(wanted)


def test_words_are_followed_to_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/kind.py").write_text(
        'HOW = "do this"\n'
        "def a(host):\n"
        '    words = f"{host.name} is gone"\n'
        '    raise Terminal("Gone", f"{words}; {HOW}")\n'
        "def b(left):\n"
        '    raise Retry("later" + f", {left + 1} more", after=1, reason="Busy")\n'
        '    raise Retry("no reason", after=1)\n'
    )
    monkeypatch.setattr("hack.docgen.source_messages.ROOT", tmp_path)
    found = list(
        find_messages("src", {"Terminal": CallSignature(0, 1), "Retry": CallSignature("reason", 0)})
    )
    assert found == [
        ReasonMessage("kind", "Terminal", "Gone", "{host.name} is gone; do this"),
        ReasonMessage("kind", "Retry", "Busy", "later, {...} more"),
    ]


def test_a_reason_whose_words_come_from_elsewhere_has_to_be_explained() -> None:
    with pytest.raises(ValueError, match="kind says Odd with words from elsewhere"):
        list(unique_messages([ReasonMessage("kind", "Terminal", "Odd", "{error}")]))


def test_a_reason_that_no_table_would_show_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_all_reasons_listed()
    monkeypatch.setattr("hack.docgen.conditions.OTHER_PREFIXES", {})
    with pytest.raises(
        ValueError, match="vcenters/registry says VCenterAmbiguous, and no table shows it"
    ):
        check_all_reasons_listed()


def test_the_parts_in_the_picture_are_modules() -> None:
    parts = [box.title for box in ARCHITECTURE.boxes.values() if box.style == "part"]
    folders = ("packages/kubewright/src/kubewright", "src/vsphere_operators/vsphere")
    assert len(parts) > 8
    assert [
        part
        for part in parts
        if not any((ROOT / folder / f"{part}.py").is_file() for folder in folders)
    ] == []


def test_a_picture_is_well_formed_and_holds_all_its_words() -> None:
    drawing = Drawing(
        "a < b",
        100,
        50,
        {"a": Box(0, 0, 20, 20, "A & B", ("x",)), "b": Box(60, 30, 20, 20, "C")},
        [Arrow("a", "right", "b", "top", "to")],
    )
    root = ElementTree.fromstring(drawing.svg())
    name = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in root.iter(f"{name}text")] == ["A & B", "x", "C", "to"]
    # Out to the right, round one corner, and in from above.
    assert [each.get("points") for each in root.iter(f"{name}polyline")] == ["20,10 70,10 70,30"]


def test_the_site_has_every_page_at_its_place(tmp_path: Path) -> None:
    assert copy_pages(tmp_path) > len(PAGES)
    assert [page for page in PAGES if not (tmp_path / page).is_file()] == []
    assert (tmp_path / "docs/pictures/architecture.svg").read_bytes() == (
        ROOT / "docs/pictures/architecture.svg"
    ).read_bytes()
    assert not re.search(
        r"^```\w+ ", (tmp_path / "docs/howto/several-vcenters.md").read_text(), re.MULTILINE
    )
