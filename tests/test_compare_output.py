from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hack.compare_output import compare, is_current, read_crds, read_fixed_texts, read_reasons

ROOT = Path(__file__).parents[1]
CONDITIONS = """\
## Conditions

| type | kinds | True means that |
| --- | --- | --- |
| `Progressing` | VmGroup | work is in progress; `Working` or `Stopped` |

## HostInfo

| reason | Ready | meaning | retried |
| --- | --- | --- | --- |
| `MaintenanceMode` | True | in maintenance |  |

## VmGroup

| reason | meaning |
| --- | --- |
| `NoSnapshot` | no snapshot |

## Events

| reason | type | object | meaning |
| --- | --- | --- | --- |
| `NodeChosen` | Normal | GPUInfo | selected |

A node is counted under the first of these that applies: `NotReady`, `PoweredOff`.
"""
FLAGS = """\
| flag | type | environment | default | description |
| --- | --- | --- | --- | --- |
| `-x` | string | `X` | `{default}` | what |

| variable | description |
| --- | --- |
| `GOVMOMI_URL` | the address |
"""


def write_checkout(root: Path, *, description: str, default: str) -> Path:
    metrics = "| metric | type | labels |\n| --- | --- | --- |\n| `x_total` | counter | name |\n"
    files = {
        "config/crd/bases/a.yaml": f"kind: X\ndescription: {description}\nplural: xs\n",
        "config/rbac/role.yaml": "kind: Role\n",
        "docs/reference/flags.md": FLAGS.format(default=default),
        "docs/reference/metrics.md": metrics,
        "docs/reference/conditions.md": CONDITIONS,
        "src/a.py": 'TEXT = "successfully reconciled VmGroup"\n',
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    old = write_checkout(tmp_path / "old", description="a", default="1")
    return old, write_checkout(tmp_path / "new", description="b", default="1")


def replace(path: Path, before: str, after: str, count: int = -1) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, count))


def test_another_description_is_not_a_difference(checkouts: tuple[Path, Path]) -> None:
    old, new = checkouts
    assert read_crds(old) == {"a.yaml": {"kind": "X", "plural": "xs"}}
    assert compare(old, new)


@pytest.mark.parametrize(
    ("page", "before", "after", "report"),
    [
        ("flags.md", "`1`", "`2`", "changed: `-x`"),
        ("flags.md", "GOVMOMI_URL", "GOVMOMI_ADDRESS", "missing: `GOVMOMI_URL`"),
        ("metrics.md", "name", "namespace", "changed: `x_total`"),
        ("conditions.md", "| True |", "| False |", "changed: HostInfo: MaintenanceMode"),
        ("conditions.md", "NoSnapshot", "Snapshot", "missing: VmGroup: NoSnapshot"),
        ("conditions.md", "Stopped", "Halted", "missing: Progressing: Stopped"),
        ("conditions.md", "Normal", "Warning", "changed: Events: NodeChosen"),
        ("conditions.md", "PoweredOff", "Off", "missing: status.refused: PoweredOff"),
    ],
)
def test_a_change_in_a_table_is_reported(
    checkouts: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    page: str,
    before: str,
    after: str,
    report: str,
) -> None:
    old, new = checkouts
    replace(new / "docs/reference" / page, before, after)
    assert not compare(old, new)
    assert report in capsys.readouterr().out


@pytest.mark.parametrize(
    "source",
    [
        "TEXT = ''\n",
        'TEXT = "successfully reconciled VmGroup, all fine"\n',
        '"""successfully reconciled VmGroup"""\n',
        'TEXT = "Successfully reconciled VmGroup"\n',
    ],
)
def test_a_text_counts_only_as_a_whole_literal(
    checkouts: tuple[Path, Path], capsys: pytest.CaptureFixture[str], source: str
) -> None:
    old, new = checkouts
    (new / "src/a.py").write_text(source)
    assert not compare(old, new)
    assert "missing: successfully reconciled VmGroup" in capsys.readouterr().out


def test_placeholders_may_have_other_names(checkouts: tuple[Path, Path]) -> None:
    old, new = checkouts
    (old / "src/a.py").write_text("a = f'too many replicas, deleting {x}'\n")
    (new / "src/a.py").write_text("a = f'too many replicas, deleting {y.z:d}'\n")
    assert not read_fixed_texts(old).keys() - read_fixed_texts(new).keys()
    (new / "src/a.py").write_text("a = f'too many replicas, deleting {y} now'\n")
    assert not read_fixed_texts(new)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the generators read, for changes."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("src", "packages/kubewright/src", "hack", "config", "docs/reference"):
        # With the byte code: Python compiles only files with another time or size again.
        shutil.copytree(ROOT / folder, root / folder)
    for file in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / file, root / file)
    return root


VMGROUP_MESSAGES = "src/vsphere_operators/kinds/vmgroup/messages.py"
CONDITIONS_PAGE = "docs/reference/conditions.md"


@pytest.mark.parametrize(
    ("path", "before", "after", "report"),
    [
        (
            CONDITIONS_PAGE,
            "| `MaintenanceMode` | True |",
            "| `MaintenanceMode` | False |",
            "changed: HostInfo: MaintenanceMode: ('True',) -> ('False',)",
        ),
        (CONDITIONS_PAGE, "| `NoVCenter` |", "| `Removed` |", "missing: GPUInfo: NoVCenter"),
        (
            VMGROUP_MESSAGES,
            '"successfully reconciled VmGroup"',
            '"successfully reconciled VmGroup, all fine"',
            "missing: successfully reconciled VmGroup",
        ),
        (
            VMGROUP_MESSAGES,
            '"VmGroup marked for deletion"',
            '"VmGroup is marked for deletion"',
            "changed: VmGroup marked for deletion: 2 -> 1",
        ),
        (
            "src/vsphere_operators/kinds/gpuinfo/types.py",
            'NONE_AVAILABLE = "None available"',
            'NONE_AVAILABLE = "none available"',
            "missing: None available",
        ),
        (
            "src/vsphere_operators/kinds/vmgroup/reasons.py",
            '"TooFewReady"',
            '"TooFew"',
            "missing: Degraded: TooFewReady",
        ),
    ],
)
def test_a_change_of_this_repository_is_reported(
    copy: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    before: str,
    after: str,
    report: str,
) -> None:
    original = (copy / path).read_text()
    try:
        replace(copy / path, before, after, 1)
        assert not compare(ROOT, copy)
    finally:
        (copy / path).write_text(original)
    assert report in capsys.readouterr().out


def test_an_unchanged_copy_is_equal(copy: Path) -> None:
    assert compare(ROOT, copy)


def test_every_reason_of_a_vmgroup_is_compared() -> None:
    reasons = [key for key in read_reasons(ROOT) if key.startswith("VmGroup: ")]
    table = (ROOT / CONDITIONS_PAGE).read_text().partition("## VmGroup")[2].partition("##")[0]
    assert len(reasons) == table.count("\n| `")


def test_a_reason_and_a_label_that_only_the_code_changes_are_reported(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        "src/vsphere_operators/kinds/hostinfo.py": ('"MaintenanceMode"', '"Maintained"'),
        "packages/kubewright/src/kubewright/metrics.py": ('"method", "host"]', '"verb", "host"]'),
    }
    originals = {path: (copy / path).read_text() for path in changes}
    try:
        for path, (before, after) in changes.items():
            replace(copy / path, before, after, 1)
        assert not is_current(copy)
    finally:
        for path, text in originals.items():
            (copy / path).write_text(text)
    output = capsys.readouterr().out
    assert "docs/reference/conditions.md is stale" in output
    assert "docs/reference/metrics.md is stale" in output
