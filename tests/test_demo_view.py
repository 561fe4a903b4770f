"""The demo's screen: everything fits and stays in place; without a terminal, changes are lines."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo.expected import SAMPLE_CHECKS, find_failed_samples
from demo.log import TAIL_BYTES, LogLine, parse_log_line, read_log_tail
from demo.manager import ManagerState
from demo.not_ready import fit_messages, not_ready_messages
from demo.snapshot import Snapshot, event_order, format_event
from demo.tables import TABLE_COLUMNS, build_tables
from demo.view import Screen, describe_changes, render_all_tables
from vsphere_operators.kubectl.table import Cell

READY_CONDITIONS = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "observedGeneration": 1,
    }
]
SPECS = {
    "HostInfo": {"hostname": "esxi-dell-e.rainpole.com"},
    "VMInfo": {"nodename": "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"},
    "FCDInfo": {"pvId": "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"},
    "DatastoreInfo": {"datastore": "LocalDS_0"},
    "ClusterInfo": {"cluster": "DC0_C0"},
    "GPUInfo": {"desAccTime": 100, "gpuRequired": True},
    "VmGroup": {"replicas": 3, "template": "vm-operator-template"},
    "MyCustomResource": {"name": "funny-joe"},
}
MESSAGE = 'Template "doesNotExist" not found in /DC0. Create it there, or change spec.template.'


NOT_READY_GROUP: dict[str, object] = {
    "metadata": {"name": "vg-2", "generation": 1},
    "spec": {"replicas": 2, "template": "doesNotExist"},
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "TemplateNotFound",
                "message": MESSAGE,
                "observedGeneration": 1,
            }
        ],
        "phase": "ERROR",
        "lastMessage": MESSAGE,
    },
}
NOT_READY_LINE = f"VmGroup/vg-2 TemplateNotFound: {MESSAGE}"


def make_objects(**status: object) -> dict[tuple[str, str], dict[str, object]]:
    return {
        (kind, name): {
            "metadata": {"name": name, "generation": 1},
            "spec": SPECS[kind],
            "status": {"conditions": READY_CONDITIONS, "lastMessage": MESSAGE, **status},
        }
        for kind, name in SAMPLE_CHECKS
    }


LOG_LINES = [
    LogLine("08:00:00 info ", f"line {n} " + "y" * 200, "object=VmGroup/vg-1") for n in range(50)
]
FULL_SNAPSHOT = Snapshot(make_objects(), [f"event {n} " + "x" * 200 for n in range(50)], LOG_LINES)
HINTS = ("export this", "kubectl that")


def render_screen(snapshot: Snapshot, width: int, height: int, *, rotation: int = 0) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )
    with console.capture() as shown:
        console.print(Screen(snapshot, HINTS, rotation=rotation), height=height)
    return [line.rstrip() for line in shown.get().splitlines()]


def render_pages(snapshot: Snapshot, width: int, height: int) -> list[list[str]]:
    """The screens of one turn of all tables; each one is checked to fill the screen exactly."""
    first = render_screen(snapshot, width, height)
    match = re.search(r"Tables 1 of (\d+)\.", first[0])
    count = int(match[1]) if match else 1
    pages = [render_screen(snapshot, width, height, rotation=2 * page) for page in range(count)]
    for lines in pages:
        assert len(lines) == height
        assert all(len(line) <= width for line in lines)
        assert lines[-2:] == list(HINTS)
    # A page stays for two rotations, and the first one follows the last one.
    assert render_screen(snapshot, width, height, rotation=1) == first
    assert render_screen(snapshot, width, height, rotation=2 * count) == first
    return pages


SIZES = [(60, 15), (80, 24), (100, 30), (160, 50), (200, 50), (240, 80)]
# Objects of each kind: more than the lines of any of these screens.
MANY = 200


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_screen_is_filled_exactly_and_every_object_is_shown(width: int, height: int) -> None:
    pages = render_pages(FULL_SNAPSHOT, width, height)
    assert len(pages) == 1 or height < 50
    assert len(pages) > 1 or height > 24
    texts = {text for lines in pages for line in lines for text in line.split()}
    for kind, name in SAMPLE_CHECKS:
        assert any(is_name_or_cut(text, name) for text in texts), (kind, name)


def is_name_or_cut(text: str, name: str) -> bool:
    """Whether a column shows this name; a narrow one cuts its middle or its end."""
    start, ellipsis, end = text.partition("…")
    return text == name or bool(
        ellipsis and len(start) > 2 and name.startswith(start) and name.endswith(end)
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("count", [0, 1, 6, MANY])
def test_two_kinds_never_share_a_row(width: int, height: int, count: int) -> None:
    seen = set[str]()
    for lines in render_pages(Snapshot(make_many_objects(count)), width, height):
        for line in lines:
            in_line = {
                kind
                for kind in SPECS
                if any(is_name_or_cut(text, kind.upper()) for text in line.split())
            }
            assert len(in_line) <= 1, line
            seen |= in_line
            assert sum(name in line.split() for _, name in SAMPLE_CHECKS) <= 1, line
    assert seen == set(SPECS)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_message_of_a_not_ready_object_is_complete_below_the_tables(
    width: int, height: int
) -> None:
    snapshot = Snapshot(
        {**make_objects(), ("VmGroup", "vg-2"): NOT_READY_GROUP},
        FULL_SNAPSHOT.events,
        LOG_LINES,
    )
    for lines in render_pages(snapshot, width, height):
        start = next(number for number, line in enumerate(lines) if line.startswith("VmGroup/vg-2"))
        assert " ".join(" ".join(lines[start : start + 2]).split()).startswith(NOT_READY_LINE)
        titles = [
            number
            for number, line in enumerate(lines)
            if any(is_name_or_cut(line.partition(" ")[0], kind.upper()) for kind in SPECS)
        ]
        assert start > max(titles)
        assert any(
            line.startswith("08:00:00 info  line 49 yyy") and line.endswith("… object=VmGroup/vg-1")
            for line in lines
        )


def make_many_objects(
    count: int, kinds: Sequence[str] = tuple(SPECS)
) -> dict[tuple[str, str], dict[str, object]]:
    """The samples, of which one is not Ready, and `count` more objects of each kind."""
    more = {(kind, f"{kind.lower()}-{n:04}"): SPECS[kind] for n in range(count) for kind in kinds}
    status: dict[str, object] = {"conditions": READY_CONDITIONS, "lastMessage": MESSAGE}
    additional = {
        (kind, name): {"metadata": {"name": name, "generation": 1}, "spec": spec, "status": status}
        for (kind, name), spec in more.items()
    }
    return {**make_objects(), **additional, ("VmGroup", "vg-2"): NOT_READY_GROUP}


@pytest.mark.parametrize("kinds", [tuple(SPECS), *((kind,) for kind in SPECS)], ids="+".join)
@pytest.mark.parametrize("count", [1, 6, 40, MANY])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_many_objects_leave_room_for_hints_and_a_complete_message(
    width: int, height: int, count: int, kinds: tuple[str, ...]
) -> None:
    objects = make_many_objects(count, kinds)
    left_out, shown = 0, set[str]()
    for lines in render_pages(Snapshot(objects, FULL_SNAPSHOT.events, LOG_LINES), width, height):
        assert NOT_READY_LINE in " ".join(" ".join(lines).split())
        assert any("object=VmGroup/vg-1" in line for line in lines)
        left_out += sum(
            int(number) for number in re.findall(r"\.\.\. (\d+) more", "\n".join(lines))
        )
        end = next(
            number
            for number, line in enumerate(lines)
            if line.startswith(("NOT READY", "VmGroup/vg-2"))
        )
        shown |= {text for line in lines[:end] for text in line.split()}
    assert {kind.upper() for kind in SPECS} <= shown
    assert left_out == sum(name not in shown for _, name in objects)


@pytest.mark.parametrize("height", range(4, 24))
@pytest.mark.parametrize("width", [60, 80])
def test_low_screen_keeps_the_hints(width: int, height: int) -> None:
    snapshot = Snapshot(make_many_objects(5), FULL_SNAPSHOT.events, LOG_LINES, script=SCRIPT)
    render_pages(snapshot, width, height)


SCRIPT = "Staged by a script at 08:00:00: a user deletes the Pod funny-joe"
KILLED = ManagerState(
    notice="The manager was killed by SIGKILL at 08:00:00. Restart 3 follows at 08:00:04.",
    is_serving=False,
    restarts=2,
    log_end=[LogLine("", "RuntimeError: it broke")],
)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_script_and_a_dead_manager_are_shown(width: int, height: int) -> None:
    snapshot = replace(FULL_SNAPSHOT, script=SCRIPT, manager=KILLED)
    for lines in render_pages(snapshot, width, height):
        assert lines[1].startswith("Staged by a script at 08:00:00: a user")
        assert KILLED.notice in " ".join(lines[2:4])
        assert "RuntimeError: it broke" in lines


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_address_of_the_page_is_above_the_hints(width: int, height: int) -> None:
    snapshot = replace(
        FULL_SNAPSHOT, manager=ManagerState(page_url="http://127.0.0.1:40000/", pid=4194304)
    )
    for lines in render_pages(snapshot, width, height):
        assert lines[-3] == "Page:  http://127.0.0.1:40000/   Manager PID:  4194304"
    assert not any("browser" in line for line in render_screen(FULL_SNAPSHOT, width, height))


def test_changes_of_the_manager_and_the_script_are_lines() -> None:
    staged = replace(FULL_SNAPSHOT, script=SCRIPT)
    assert list(describe_changes(FULL_SNAPSHOT, staged)) == [SCRIPT]
    killed = replace(staged, manager=KILLED)
    assert list(describe_changes(staged, killed)) == [KILLED.notice, "RuntimeError: it broke"]
    assert list(describe_changes(killed, killed)) == []
    page_url = "http://127.0.0.1:40000/"
    running = replace(staged, manager=ManagerState(restarts=3, page_url=page_url))
    assert list(describe_changes(killed, running)) == [
        "The manager responds again.",
        f"Page in a browser: {page_url}",
    ]


def test_names_and_messages_cannot_control_the_terminal() -> None:
    hostile = "vm\x1b[2J\u202e"
    condition = {**READY_CONDITIONS[0], "status": "False", "message": hostile}
    objects = make_objects(conditions=[condition], lastMessage=hostile)
    line = LogLine("08:00:00 info ", hostile, hostile)
    snapshot = Snapshot(objects, [hostile], [line], script=hostile)
    for shown in render_screen(snapshot, 160, 50):
        assert shown.isprintable()
    assert any(r"vm\x1b[2J\u202e" in shown for shown in render_screen(snapshot, 160, 50))
    for text in describe_changes(None, snapshot):
        assert text.isprintable()


def test_long_message_is_complete() -> None:
    long = "no node suits; " * 30 + "end"
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "NoNode",
        "message": long,
        "observedGeneration": 1,
    }
    objects = {
        **make_objects(),
        ("GPUInfo", "gpu1"): {
            **NOT_READY_GROUP,
            "metadata": {"name": "gpu1"},
            "status": {"conditions": [condition]},
        },
    }
    lines = render_screen(Snapshot(objects, FULL_SNAPSHOT.events, LOG_LINES), 80, 24)
    assert len(lines) == 24
    assert lines[-2:] == list(HINTS)
    assert f"GPUInfo/gpu1 NoNode: {long}" in " ".join(" ".join(lines).split())


def test_messages_that_do_not_all_fit_take_turns() -> None:
    texts = [f"GPUInfo/gpu{n} NoNode: " + "no node suits " * 9 for n in range(4)]
    seen = set[str]()
    for turn in range(4):
        lines = fit_messages(texts, 80, 3, turn)
        assert len(lines) <= 3
        assert all(len(line) <= 80 for line in lines)
        seen.add(" ".join(" ".join(lines).split()))
    assert seen == {f"[{n + 1}/4] {text.strip()}" for n, text in enumerate(texts)}
    assert fit_messages(texts, 80, 99, 0) == [
        line for text in texts for line in fit_messages([text], 80, 2, 0)
    ]


def test_only_reconciled_objects_that_are_not_ready_have_a_message() -> None:
    new: dict[str, object] = {"metadata": {"name": "new"}}
    objects = {**make_objects(), ("VmGroup", "vg-2"): NOT_READY_GROUP, ("VmGroup", "new"): new}
    assert not_ready_messages(Snapshot(objects)) == [NOT_READY_LINE]


def test_hints_stay_in_place_while_events_and_log_grow() -> None:
    empty = render_screen(Snapshot(make_objects()), 160, 50)
    assert len(empty) == 50
    assert empty[-2:] == list(HINTS)


def test_newest_lines_are_shown() -> None:
    lines = render_screen(FULL_SNAPSHOT, 160, 50)
    assert any(line.startswith("event 49 ") for line in lines)
    assert any(line.startswith("08:00:00 info  line 49 ") for line in lines)
    assert not any(line.startswith("event 0 ") for line in lines)


def test_final_tables_are_complete_without_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(render_all_tables(FULL_SNAPSHOT, 0), soft_wrap=True)
    assert MESSAGE in shown.get()
    assert "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298" in shown.get()


def test_only_a_changed_object_is_a_line() -> None:
    assert len(list(describe_changes(None, FULL_SNAPSHOT))) == len(SAMPLE_CHECKS)
    assert list(describe_changes(FULL_SNAPSHOT, FULL_SNAPSHOT)) == []
    moved = {
        **make_objects(),
        ("MyCustomResource", "my-custom-resource-01"): make_objects(Healthy=True)[
            "MyCustomResource", "my-custom-resource-01"
        ],
    }
    assert list(describe_changes(FULL_SNAPSHOT, Snapshot(moved))) == [
        "MyCustomResource my-custom-resource-01: friend funny-joe, healthy true"
    ]


def test_sample_without_its_status_is_named() -> None:
    wrong = find_failed_samples({})
    assert set(wrong) == set(SAMPLE_CHECKS)
    assert set(wrong.values()) == {"the sample does not exist"}
    assert find_failed_samples(make_objects())["VmGroup", "vg-2"].startswith(
        "expected ERROR, got None"
    )
    pending = find_failed_samples(
        make_objects(phase="RUNNING", currentReplicas=3, readyReplicas=2)
    )["VmGroup", "vg-1"]
    assert pending.startswith("RUNNING: 2 of 3 ready")


def test_event_line() -> None:
    event = {
        "lastTimestamp": "2026-11-16T04:29:37Z",
        "involvedObject": {"kind": "VmGroup", "name": "vg-2"},
        "reason": "R",
        "message": "m",
    }
    assert format_event(event) == "04:29:37 VmGroup/vg-2 R: m"


def test_events_of_one_second_are_in_the_order_of_their_writes() -> None:
    events: list[dict[str, Any]] = [
        {"lastTimestamp": time, "metadata": {"resourceVersion": version}}
        for time, version in (
            ("2026-11-16T04:29:38Z", "9"),
            ("2026-11-16T04:29:37Z", "101"),
            ("2026-11-16T04:29:37Z", "99"),
        )
    ]
    ordered = sorted(events, key=event_order)
    assert [event["metadata"]["resourceVersion"] for event in ordered] == ["99", "101", "9"]


def test_reason_of_a_ready_object_does_not_replace_true() -> None:
    condition = {**READY_CONDITIONS[0], "reason": "HostsUnavailable"}
    objects = make_objects(conditions=[condition])
    row = build_tables(Snapshot(objects))["ClusterInfo"].rows[0]
    assert row[-1] == Cell("True (HostsUnavailable)", "good")


def test_event_without_an_object_is_a_line() -> None:
    # The API server creates such Events about itself.
    assert (
        format_event({"eventTime": "2026-11-16T04:29:37Z", "involvedObject": {}}) == "04:29:37 / : "
    )


@pytest.mark.parametrize(
    ("fields", "suffix"),
    [
        (
            {
                "controllerKind": "VmGroup",
                "VmGroup": {"name": "vg-1", "namespace": "default"},
                "name": "vg-1",
            },
            " object=VmGroup/vg-1",
        ),
        (
            {"controllerKind": "VmGroup", "object": "default/vg-1", "reason": "Paused"},
            " object=VmGroup/vg-1 reason=Paused",
        ),
        (
            {"controllerKind": "VmGroup", "name": "vg-1", "error": "it broke"},
            " object=VmGroup/vg-1 reason=it broke",
        ),
        (
            {"controller": "vmgroup", "controllerKind": "VmGroup", "workers": 16},
            " controller=vmgroup",
        ),
        ({"vCenter": "default", "error": "no route"}, " vCenter=default reason=no route"),
        ({}, ""),
    ],
)
def test_log_line_names_its_object(fields: dict[str, object], suffix: str) -> None:
    line = parse_log_line(
        json.dumps({"level": "info", "ts": "2026-11-16T04:29:37Z", "msg": "well", **fields})
    )
    assert line.fit_width(80) == f"04:29:37 info  well{suffix}"


def test_message_of_a_log_line_is_cut_before_its_object() -> None:
    line = LogLine("04:29:37 info ", "word " * 30, "object=VmGroup/vg-1")
    assert len(line.fit_width(80)) == 80
    assert line.fit_width(80).endswith("… object=VmGroup/vg-1")
    endless = LogLine("04:29:37 info ", "word " * 30, "object=VmGroup/vg-1 reason=" + "why " * 50)
    assert endless.fit_width(80)[:41] == "04:29:37 info  word word word word word… "[:41]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "{not json}",
        '{"level": "info"}',
        "{'a': 1}",
        '{"ts": 1, "msg": "x"}',
        '{"a":' * 5000 + "1" + "}" * 5000,
    ],
    ids=len,
)
def test_line_that_is_not_a_record_is_shown_unchanged(line: str, tmp_path: Path) -> None:
    assert parse_log_line(line).fit_width(len(line)) == line
    assert len(parse_log_line(line * 50).fit_width(80)) == 80
    (tmp_path / "manager.log").write_text(f"{line[: TAIL_BYTES // 2]}}}\n{LOG_RECORD}\n")
    assert read_log_tail(tmp_path / "manager.log")[-1] == parse_log_line(LOG_RECORD)


@pytest.mark.parametrize("value", [None, 7, {"a": 1}, "two\nlines"])
def test_record_with_unexpected_values_is_one_line(value: object) -> None:
    shown = parse_log_line(json.dumps({"level": value, "ts": value, "msg": value}))
    lines = render_screen(
        Snapshot(make_objects(), ["an event\nof two lines"], [shown] * 50), 160, 50
    )
    assert len(lines) == 50
    assert lines[-2:] == list(HINTS)


LOG_RECORD = json.dumps(
    {
        "level": "info",
        "ts": "2026-11-16T04:29:37Z",
        "msg": "well",
        "controllerKind": "VmGroup",
        "name": "vg-1",
        "namespace": "default",
    }
)


@pytest.mark.parametrize("cut", range(len(LOG_RECORD) + 1))
def test_log_tail_may_begin_and_end_inside_a_line(cut: int, tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    count = TAIL_BYTES // len(LOG_RECORD) + 2
    log.write_text(f"{LOG_RECORD}\n" * count + LOG_RECORD[:cut])
    lines = read_log_tail(log)
    assert {line.fit_width(80) for line in lines} == {"04:29:37 info  well object=VmGroup/vg-1"}
    assert count - 4 <= len(lines) < count


def test_short_log_is_shown_from_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "manager.log").write_text(f"{LOG_RECORD}\n")
    assert len(read_log_tail(tmp_path / "manager.log")) == 1
    assert read_log_tail(tmp_path / "nowhere") == []


@pytest.mark.parametrize("kind", TABLE_COLUMNS)
@pytest.mark.parametrize(
    "obj",
    [{"metadata": {"name": "x"}}, {"metadata": {"name": "x"}, "spec": {}}],
    ids=["no spec", "empty spec"],
)
def test_object_without_a_spec_has_a_row(kind: str, obj: dict[str, object]) -> None:
    (table,) = build_tables(Snapshot({(kind, "x"): obj})).values()
    assert [row[0].text for row in table.rows] == ["x"]
