from __future__ import annotations

from pathlib import Path

import pytest

from hack.compare_output import compare, read_crds


def write_checkout(root: Path, *, description: str, default: str) -> Path:
    files = {
        "config/crd/bases/a.yaml": f"kind: X\ndescription: {description}\nplural: xs\n",
        "config/rbac/role.yaml": "kind: Role\n",
        "docs/reference/flags.md": f"| `-x` | string | `X` | `{default}` | what |\n",
        "docs/reference/metrics.md": "| `x_total` | counter | controller | what |\n",
        "docs/reference/conditions.md": "| `NotFound` | False | message | never |\n",
        "src/a.py": 'TEXT = "successfully reconciled VmGroup"\n',
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_another_description_is_not_a_difference(tmp_path: Path) -> None:
    old = write_checkout(tmp_path / "old", description="a", default="1")
    new = write_checkout(tmp_path / "new", description="b", default="1")
    assert read_crds(old) == {"a.yaml": {"kind": "X", "plural": "xs"}}
    assert compare(old, new)


def test_another_default_of_a_flag_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_checkout(tmp_path / "old", description="a", default="1")
    new = write_checkout(tmp_path / "new", description="a", default="2")
    assert not compare(old, new)
    assert "changed: `-x`" in capsys.readouterr().out


def test_a_missing_text_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write_checkout(tmp_path / "old", description="a", default="1")
    new = write_checkout(tmp_path / "new", description="a", default="1")
    (new / "src/a.py").write_text("TEXT = ''\n")
    assert not compare(old, new)
    assert "missing: successfully reconciled VmGroup" in capsys.readouterr().out
