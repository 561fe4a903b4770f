from __future__ import annotations

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
    user = "from example import check\n"
    assert list(find_unmarked({MODULE: source, "tests/test_example.py": user})) == []


def test_marked_names_and_names_that_only_a_library_calls_pass() -> None:
    source = "def _check() -> int:\n    return 1\n\n\ndef run() -> int:\n    return _check()\n"
    assert list(find_unmarked({MODULE: source})) == []
