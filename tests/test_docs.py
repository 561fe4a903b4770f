"""Checks every Markdown page: links and anchors exist, every block runs or has a reason not to, and
generated pages are complete.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hack.docgen import ROOT
from hack.docgen.conditions import (
    APPLICATION_PACKAGE,
    RUNTIME_PACKAGE,
    reasons_by_title,
    title_of,
)
from hack.docgen.markdown import anchors, fenced_blocks, links, slug
from hack.docgen.reasons import ReasonUse, read_reasons
from hack.docgen.source_messages import Message, find_messages
from hack.docgen.website import copy_pages, label_cells, list_pages
from kubewright.flags import collect_flag_fields
from support.howtos import list_howtos
from support.vcenter_account import SYSTEM_PRIVILEGES
from vsphere_operators.settings.flags import Settings
from vsphere_operators.vsphere import privileges

PAGES = list_pages()
EXTERNAL_URL = re.compile(r"[a-z]+://|mailto:")
# tests/real/test_tutorial.py runs the tutorials, which have their own marks.
PAGES_WITHOUT_TUTORIALS = [page for page in PAGES if not str(page).startswith("docs/tutorial/")]
LANGUAGES = {"", "text", "sh", "python", "yaml"}


def read_page(page: Path) -> str:
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_has_a_target(page: Path) -> None:
    assert [
        f"line {line}: {target}: {problem}"
        for line, target in links(read_page(page))
        if (problem := find_link_problem(page, target))
    ] == []


def find_link_problem(page: Path, target: str) -> str:
    """Return "" for a valid link."""
    if EXTERNAL_URL.match(target):
        return ""
    path, _, anchor = target.partition("#")
    file = (ROOT / page.parent / path).resolve() if path else ROOT / page
    if not file.is_relative_to(ROOT) or not file.exists():
        return "there is no such file"
    if file.is_dir():
        return "a folder: link to a file in it, so that it works on the site too"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
        return f"no such heading in {file.relative_to(ROOT)}"
    return ""


def test_broken_links_are_reported() -> None:
    page = Path("docs/README.md")
    assert find_link_problem(page, "nowhere.md") == "there is no such file"
    assert find_link_problem(page, "../../etc/passwd") == "there is no such file"
    assert (
        find_link_problem(page, "howto")
        == "a folder: link to a file in it, so that it works on the site too"
    )
    assert find_link_problem(page, "../README.md#no-such-thing") == "no such heading in README.md"
    assert (
        find_link_problem(page, "#tutorials")
        == find_link_problem(page, "https://example.com/x")
        == ""
    )


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_named_test_exists(page: Path) -> None:
    """A link with the name of a test leads to a file that has it."""
    text = read_page(page)
    targets = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", text, re.MULTILINE))
    named = re.findall(r"\[`(test_\w+)`\]\[([\w-]+)\]", text)
    assert [
        f"{name}: {targets[label]}"
        for name, label in named
        if f"def {name}(" not in (ROOT / page.parent / targets[label]).read_text()
    ] == []
    assert targets.keys() == set(re.findall(r"\]\[([\w-]+)\]", text))


def test_every_row_of_the_reliability_tables_names_tests() -> None:
    _, *rows = re.split(
        r"^\*\*(\d+)\.\*\*", read_page(Path("docs/explanation/reliability.md")), flags=re.MULTILINE
    )
    numbers, texts = rows[::2], rows[1::2]
    assert numbers == [str(number) for number in range(1, 26)]
    assert [
        number
        for number, text in zip(numbers, texts, strict=True)
        if not re.search(r"^- \[`test_\w+`\]\[", text.partition("</tr>")[0], re.MULTILINE)
    ] == []


def test_table_of_watch_faults_has_every_case() -> None:
    page = read_page(Path("docs/designs/testing.md"))
    section = page.partition("## Watch faults\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    tests = (ROOT / "packages/kubewright/tests/test_watch_faults.py").read_text()
    cases = re.findall(r'^    "(.+)": Script\(', tests, re.MULTILINE)
    assert [row for row in rows if row != "fault"] == cases


def test_tables_in_html_have_markdown_on_the_site(tmp_path: Path) -> None:
    copy_pages(tmp_path)
    page = (tmp_path / "docs/explanation/reliability.md").read_text()
    assert page.count('</td><td markdown="block">\n') == 25 * 3
    assert "<td>\n" not in page


# Reference pages, runbooks and the list of samples are generated.
HANDWRITTEN_PAGES = [
    page
    for page in PAGES
    if not str(page).startswith(("docs/reference/", "docs/runbooks/", "config/samples/", "charts/"))
]


@pytest.mark.parametrize("page", HANDWRITTEN_PAGES, ids=str)
def test_lines_have_at_most_100_columns(page: Path) -> None:
    lines = enumerate(read_page(page).splitlines(), 1)
    assert [number for number, line in lines if len(line) > 100] == []


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_every_block_is_runnable_or_has_a_reason_not_to_run(page: Path) -> None:
    unknown = [
        f"line {block.line}: {block.language}"
        for block in fenced_blocks(read_page(page))
        if block.language not in LANGUAGES
    ]
    assert unknown == []
    assert re.findall(r"^ +```.*$", read_page(page), re.MULTILINE) == [], (
        "python-markdown, which builds the site, does not support indented fences"
    )
    marks = re.findall(r"^ *<!-- (?:not run|run in order):", read_page(page), re.MULTILINE)
    marked = [
        block for block in fenced_blocks(read_page(page)) if block.skip_reason or block.order_reason
    ]
    assert len(marks) == len(marked), "the mark must be directly above its block"
    assert page in list_howtos() or not any(block.order_reason for block in marked), (
        "only how-tos are run in order"
    )


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_page_renders_every_overlay_it_shows(page: Path) -> None:
    blocks = fenced_blocks(read_page(page))
    folders = [
        str(Path(block.argument).parent)
        for block in blocks
        if block.argument.endswith("kustomization.yaml")
    ]
    commands = "".join(
        block.text for block in blocks if block.language == "sh" and not block.skip_reason
    )
    assert [
        folder for folder in folders if not re.search(rf"(kustomize|-k) {folder}\b", commands)
    ] == []


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_page_deploys_every_overlay_it_shows_with_an_image(page: Path) -> None:
    blocks = fenced_blocks(read_page(page))
    folders = [
        str(Path(block.argument).parent)
        for block in blocks
        if block.argument.endswith("kustomization.yaml")
    ]
    commands = "".join(block.text for block in blocks if block.language == "sh")
    command = "make deploy OVERLAY={} IMG=example.com/vsphere-operators:v1\n"
    assert [folder for folder in folders if command.format(folder) not in commands] == []


@pytest.mark.parametrize("page", PAGES_WITHOUT_TUTORIALS, ids=str)
def test_no_command_resets_the_image(page: Path) -> None:
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


def test_index_has_every_howto_once() -> None:
    pages = sorted(page for page in PAGES if page.parent == Path("docs/howto"))
    assert sorted(list_howtos()) == pages


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_one_way_to_apply_what_is_installed(page: Path) -> None:
    """Client-side and server-side apply of the same object would conflict."""
    apply = r"kubectl apply (?!--server-side)"
    patterns = (
        rf"{apply}.*(?:config/(?!samples)|install\.yaml).*$",
        rf"(?:kustomize|build-installer|crd).*\| *{apply}.*$",
    )
    commands = read_page(page).replace("\\\n", " ")
    assert [re.findall(pattern, commands, re.MULTILINE) for pattern in patterns] == [[], []]


@pytest.mark.parametrize("page", ["docs/howto/install.md", "docs/howto/local-cluster.md"])
def test_credentials_are_created_before_the_manager(page: str) -> None:
    assert re.findall(
        r"namespace\.yaml|create secret|^make .*deploy ", read_page(Path(page)), re.MULTILINE
    )[:3] == [
        "namespace.yaml",
        "create secret",
        *re.findall(r"^make .*deploy ", read_page(Path(page)), re.MULTILINE),
    ]


@pytest.mark.parametrize("name", ["install", "deploy", "production"])
def test_doctor_in_the_pod_has_the_flags_of_the_deployment(name: str) -> None:
    commands = read_page(Path(f"docs/howto/{name}.md")).replace("\\\n", "")
    (flags,) = re.findall(r"/manager doctor ([^`\n]+)", commands)
    assert flags.split() == [
        *("$(kubectl", "-n", "vsphere-operators-system", "get", "deployment"),
        "vsphere-operators-controller-manager",
        *("-o", "jsonpath='{.spec.template.spec.containers[0].args[*]}')"),
    ]


def test_readme_picture_shows_every_kind() -> None:
    assert "](docs/pictures/live-view.svg)" in read_page(Path("README.md"))
    root = ElementTree.parse(ROOT / "docs/pictures/live-view.svg").getroot()
    shown = " ".join(text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    kinds = ("HOSTINFO", "VMINFO", "FCDINFO", "GPUINFO", "VMGROUP", "MYCUSTOMRESOURCE")
    assert [kind for kind in kinds if kind not in shown] == []


def test_readme_picture_is_a_small_animation() -> None:
    picture = ROOT / "docs/pictures/live-view.svg"
    assert picture.stat().st_size < 300_000
    text = picture.read_text()
    assert "@keyframes" in text
    assert "Staged by a script at" in text.replace("&#160;", " ")
    # A browser loads nothing else for a picture in a page.
    addresses = re.findall(r"https?://[^\"\s<]+", text)
    # The demo shows the address of its page as text.
    others = [address for address in addresses if not address.startswith("http://127.0.0.1:")]
    assert others == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("From clone to a merged kind", "from-clone-to-a-merged-kind"),
        ("/metrics", "metrics"),
        ("`manager doctor`", "manager-doctor"),
        ("How fast it is, and why", "how-fast-it-is-and-why"),
        ("spec of HostInfo v1", "spec-of-hostinfo-v1"),
        (
            "Why a node is rejected, in `status.refused` of GPUInfo",
            "why-a-node-is-rejected-in-statusrefused-of-gpuinfo",
        ),
        ("See [the bench](bench.md) too", "see-the-bench-too"),
    ],
)
def test_anchors_match_github(heading: str, anchor: str) -> None:
    assert slug(heading) == slug(heading, "-") == anchor
    assert anchors(f"# {heading}\n\n```sh\n# no heading\n```\n\n## {heading}\n") == {
        anchor,
        f"{anchor}-1",
    }


def test_links_in_code_are_ignored() -> None:
    page = (
        "[a](a.md) `[b](b.md)` ![c](c.svg)\n"
        "```text\n[d](d.md)\n```\n"
        "<!-- [e](e.md) -->\n[f](<f.md>)\n"
    )
    assert list(links(page)) == [(1, "a.md"), (1, "c.svg"), (6, "f.md")]


def test_links_with_wrapped_text_are_found() -> None:
    assert list(links("one\n[two\nlines](a.md) and [x]\n\n[b](b.md)\n")) == [
        (2, "a.md"),
        (5, "b.md"),
    ]


def test_block_has_line_argument_and_skip_reason() -> None:
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
    (third,) = fenced_blocks("<!-- run in order: it needs a manager -->\n```sh\nls\n```\n")
    assert (third.skip_reason, third.order_reason) == ("", "it needs a manager")


def test_reference_lists_every_flag_and_variable() -> None:
    page = read_page(Path("docs/reference/flags.md"))
    flags = [
        f"`-{name}`" for flag_field in collect_flag_fields(Settings) for name in flag_field.names
    ]
    variables = [
        f"`{flag_field.flag.env}`"
        for flag_field in collect_flag_fields(Settings)
        if flag_field.flag.env
    ]
    assert [name for name in flags + variables if name not in page] == []


def test_reference_lists_every_declared_metric() -> None:
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
    assert {name for name in declared if f"`{name}`" not in page} == set()


def test_reference_lists_every_reason_that_tests_assert() -> None:
    # Tests assert reasons that the manager emits; the page reads them from the source.
    asserted = {
        reason
        for path in (ROOT / "tests").rglob("test_*.py")
        for reason in re.findall(r"""(?:reason|\["reason"\]) == "([A-Z]\w+)\"""", path.read_text())
    }
    page = read_page(Path("docs/reference/conditions.md")) + read_page(
        Path("docs/reference/errors.md")
    )
    assert len(asserted) > 10
    assert {reason for reason in asserted if f"`{reason}`" not in page} == set()


def test_privileges_page_has_the_table_and_a_role_command_for_each_role() -> None:
    page = read_page(Path("docs/reference/privileges.md"))
    commands = " ".join(page.replace("\\\n", "").split())
    for role in privileges.ROLES:
        assert [name for name in role.privilege_names if f"| `{name}` |" not in page] == []
        assert f"govc role.create {role.name} {' '.join(role.privilege_names)} govc" in commands
        assert f"-role {role.name} -propagate=true {role.placeholder}" in commands
    listed = {name for role in privileges.ROLES for name in role.privilege_names}
    assert set(re.findall(r"^\| `(\w+\.[\w.]+)` \|", page, re.MULTILINE)) == listed


def test_privileges_page_lists_what_every_role_has() -> None:
    page = " ".join(read_page(Path("docs/reference/privileges.md")).split())
    *first, last = SYSTEM_PRIVILEGES
    names = f"{', '.join(f'`{name}`' for name in first)} and `{last}`"
    assert f"vCenter adds {names} to every role" in page


def test_message_is_followed_to_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/kind.py").write_text(
        'HOW = "do this"\n'
        "def a(host):\n"
        '    message = f"{host.name} is gone"\n'
        '    raise Terminal("Gone", f"{message}; {HOW}")\n'
        "def b(remaining, names):\n"
        '    listed = ", ".join(names)\n'
        '    raise Terminal("Busy", "later" + f", {remaining + 1} more: {listed}")\n'
        "    raise Terminal()\n"
    )
    monkeypatch.setattr("hack.docgen.source_messages.ROOT", tmp_path)
    assert list(find_messages("src", ("Terminal",))) == [
        Message("kind", "Terminal", ("Gone", "<host name> is gone; do this")),
        Message("kind", "Terminal", ("Busy", "later, <remaining> more: <listed>")),
    ]


def test_reasons_are_read_from_enums_and_from_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "enums").mkdir()
    (tmp_path / "enums/kind.py").write_text(
        "class Reason(str):\n"
        '    """Not a member."""\n'
        '    GONE = "Gone"\n'
        '    """The host does not exist."""\n'
        '    BUSY = "Busy"\n'
        "def a():\n"
        '    raise Retry("Busy", "the host is busy now")\n'
        '    raise Terminal("Plain", "a reason without an enum")\n'
    )
    monkeypatch.setattr("hack.docgen.source_messages.ROOT", tmp_path)
    assert [
        (reason.value, reason.description, reason.callees) for reason in read_reasons("enums")
    ] == [
        ("Gone", "The host does not exist.", []),
        ("Busy", "the host is busy now", ["Retry"]),
        ("Plain", "a reason without an enum", ["Terminal"]),
    ]


def test_reason_without_an_explanation_is_an_error() -> None:
    with pytest.raises(ValueError, match="kind: Odd has no docstring, and no message explains it"):
        _ = ReasonUse("kind", "Odd").description


def test_reason_of_a_module_without_a_heading_is_an_error() -> None:
    assert set(reasons_by_title()) > {"HostInfo", "VmGroup"}
    with pytest.raises(ValueError, match="webhooks has reasons, but no table lists them"):
        title_of("webhooks")


@pytest.mark.parametrize("name", ["conditions", "errors", "flags", "metrics", "settings", "make"])
def test_reference_has_no_python_placeholders(name: str) -> None:
    page = read_page(Path(f"docs/reference/{name}.md"))
    assert re.findall(r"\{[a-z_.]+\}|\{\.\.\.\}", page) == []


def test_parts_in_the_picture_are_modules() -> None:
    svg = ElementTree.fromstring(read_page(Path("docs/pictures/architecture.svg")))
    titles = [
        element.text or ""
        for element in svg.iter("{http://www.w3.org/2000/svg}text")
        if element.get("class") == "title"
    ]
    # The other boxes are programs and people.
    modules = [title for title in titles if re.fullmatch(r"[a-z_]+", title)]
    folders = ("packages/kubewright/src/kubewright", "src/vsphere_operators/vsphere")
    assert len(modules) > 8
    assert [
        module
        for module in modules
        if not any((ROOT / folder / f"{module}.py").is_file() for folder in folders)
    ] == []


def test_site_has_every_page_at_its_path(tmp_path: Path) -> None:
    assert copy_pages(tmp_path) > len(PAGES)
    assert [page for page in PAGES if not (tmp_path / page).is_file()] == []
    assert (tmp_path / "docs/pictures/architecture.svg").read_bytes() == (
        ROOT / "docs/pictures/architecture.svg"
    ).read_bytes()
    assert not re.search(
        r"^```\w+ ", (tmp_path / "docs/howto/several-vcenters.md").read_text(), re.MULTILINE
    )


def test_cells_of_a_table_have_the_heading_of_their_column() -> None:
    table = "| flag | default |\n|---|---|\n| `-x` | `a\\|b` |\n| `-y` | |\n"
    fence = "```text\n| a | b |\n| c | d |\n```\n"
    assert label_cells(f"{fence}\n{table}") == (
        f"{fence}\n| flag | default |\n| --- | --- |\n"
        '| `-x` | `a\\|b` {: data-column="default" } |\n| `-y` |  |\n'
    )
