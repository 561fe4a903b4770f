from __future__ import annotations

import pytest

from hack.check_private_names import PACKAGES, find_unmarked

MODULE = f"{PACKAGES[0]}example.py"


def test_a_name_that_only_its_module_uses_needs_an_underscore() -> None:
    source = "LIMIT = 3\n\n\ndef check() -> int:\n    return LIMIT\n\n\nprint(check())\n"
    assert [line.partition(": only")[0] for line in find_unmarked({MODULE: source})] == [
        f"{MODULE}:1: LIMIT",
        f"{MODULE}:4: check",
    ]


def test_a_name_that_another_file_uses_is_offered() -> None:
    source = "def check() -> int:\n    return 1\n\n\nprint(check())\n"
    user = "from vsphere_operators.example import check\n"
    assert list(find_unmarked({MODULE: source, "tests/test_example.py": user})) == []


def test_marked_names_and_names_that_only_a_library_calls_pass() -> None:
    source = "def _check() -> int:\n    return 1\n\n\ndef run() -> int:\n    return _check()\n"
    assert list(find_unmarked({MODULE: source})) == []


def test_classes_aliases_and_other_assignments_count_too() -> None:
    source = "class Box:\n    pass\n\n\nBoxes = list[Box]\nboxes: Boxes = []\nprint(boxes)\n"
    assert [line.split(": ")[1] for line in find_unmarked({MODULE: source})] == [
        "Box",
        "Boxes",
        "boxes",
    ]


def test_the_same_word_in_another_file_is_not_a_use() -> None:
    source = "def check() -> int:\n    return 1\n\n\nprint(check())\n"
    other = "from other import check\n\ncheck()\n"
    hits = list(find_unmarked({MODULE: source, "tests/test_other.py": other}))
    assert [hit.split(": ")[1] for hit in hits] == ["check"]


@pytest.mark.parametrize(
    "user",
    [
        "from vsphere_operators import example\n\nexample.check()\n",
        "import vsphere_operators.example as e\n\ne.check()\n",
        "from vsphere_operators.example import check as c\n",
        'TARGET = "vsphere_operators.example.check"\n',
        "from vsphere_operators import example\n\npatch(example, 'check')\n",
    ],
)
def test_uses_of_a_module_level_name(user: str) -> None:
    source = "def check() -> int:\n    return 1\n\n\nprint(check())\n"
    assert list(find_unmarked({MODULE: source, "tests/test_example.py": user})) == []
    relative = user.replace("from vsphere_operators import", "from . import")
    relative = relative.replace("from vsphere_operators.example", "from .example")
    assert list(find_unmarked({MODULE: source, f"{PACKAGES[0]}user.py": relative})) == []


def test_a_documented_name_is_offered() -> None:
    source = "class Check:\n    pass\n\n\nprint(Check)\n"
    page = "```python\nfrom vsphere_operators.example import Check\n```\n"
    assert list(find_unmarked({MODULE: source}, page)) == []
    assert list(find_unmarked({MODULE: source}, 'a = "vsphere_operators.example:Check"')) == []
    assert list(find_unmarked({MODULE: source}, "Check your settings.")) != []


def test_types_in_the_signature_of_a_public_name_are_public() -> None:
    source = (
        "class Part:\n    pass\n\n\nclass Box:\n    part: Part\n\n\n"
        "def make() -> Box:\n    return Box(Part())\n"
    )
    user = "from vsphere_operators.example import make\n"
    assert list(find_unmarked({MODULE: source, "tests/test_example.py": user})) == []
    assert len(list(find_unmarked({MODULE: source}))) == 2


def test_a_method_that_only_its_module_calls() -> None:
    source = (
        "class Box:\n    def open(self) -> None:\n        self.lift()\n\n"
        "    def lift(self) -> None: ...\n"
    )
    user = "from vsphere_operators.example import Box\n\nBox().open()\nlift = 1\n"
    hits = list(find_unmarked({MODULE: source, "tests/test_example.py": user}))
    assert [hit.split(": ")[1] for hit in hits] == ["lift"]
