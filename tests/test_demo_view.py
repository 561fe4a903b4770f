"""The demo's screens: all fits, nothing jumps, and changes are lines where there is no terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from demo.expected import SAMPLES, shortfalls
from demo.snapshot import TAIL_BYTES, Snapshot, line_of_event, line_of_log, log_lines
from demo.tables import SHAPES, tables
from demo.view import Screen, changes, final

READY = [{"type": "Ready", "status": "True", "reason": "Reconciled", "message": "", "observedGeneration": 1}]
SPECS = {
    "HostInfo": {"hostname": "esxi-dell-e.rainpole.com"},
    "VMInfo": {"nodename": "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298"},
    "FCDInfo": {"pvId": "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"},
    "GPUInfo": {"desAccTime": 100, "gpuRequired": True},
    "VmGroup": {"replicas": 3, "template": "vm-operator-template"},
    "MyCustomResource": {"name": "funny-joe"},
}
MESSAGE = 'no template "doesNotExist" in /DC0; create it there, or change spec.template'


def objects(**status: object) -> dict[tuple[str, str], dict[str, object]]:
    return {
        (kind, name): {
            "metadata": {"name": name, "generation": 1},
            "spec": SPECS[kind],
            "status": {"conditions": READY, "lastMessage": MESSAGE, **status},
        }
        for kind, name in SAMPLES
    }


FULL = Snapshot(objects(), [f"event {n} " + "x" * 200 for n in range(50)], [f"line {n} " + "y" * 200 for n in range(50)])
HINTS = ("export this", "kubectl that")


def screen(snapshot: Snapshot, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as shown:
        console.print(Screen(snapshot, HINTS), height=height)
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (240, 80)])
def test_a_screen_is_filled_exactly_and_nothing_wraps(width: int, height: int) -> None:
    lines = screen(FULL, width, height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    assert lines[-2:] == list(HINTS)
    for kind, name in SAMPLES:
        assert any(line.startswith(name) for line in lines), (kind, name)


def test_hints_stay_where_they_are_while_events_and_log_grow() -> None:
    empty = screen(Snapshot(objects()), 160, 50)
    assert len(empty) == 50
    assert empty[-2:] == list(HINTS)


def test_the_newest_lines_are_shown() -> None:
    lines = screen(FULL, 160, 50)
    assert any(line.startswith("event 49 ") for line in lines)
    assert any(line.startswith("line 49 ") for line in lines)
    assert not any(line.startswith("event 0 ") for line in lines)


def test_final_tables_are_whole_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(final(FULL, 0), soft_wrap=True)
    assert MESSAGE in shown.get()
    assert "tkg-cluster-1-18-5b-workers-kc5xn-dd68c4685-5v298" in shown.get()


def test_only_what_changed_is_a_line() -> None:
    assert len(list(changes(None, FULL))) == len(SAMPLES)
    assert list(changes(FULL, FULL)) == []
    moved = {**objects(), ("MyCustomResource", "my-custom-resource-01"): objects(Healthy=True)["MyCustomResource", "my-custom-resource-01"]}
    assert list(changes(FULL, Snapshot(moved))) == ["MyCustomResource my-custom-resource-01: friend funny-joe, healthy true"]


def test_a_sample_without_its_answer_is_named() -> None:
    wrong = shortfalls({})
    assert set(wrong) == set(SAMPLES)
    assert set(wrong.values()) == {"the sample is not there"}
    assert shortfalls(objects())["VmGroup", "vg-2"].startswith("it should be ERROR, but is None")
    pending = shortfalls(objects(phase="RUNNING", currentReplicas=3, readyReplicas=2))["VmGroup", "vg-1"]
    assert pending.startswith("RUNNING: 2 of 3 ready")


def test_lines_of_events_and_logs() -> None:
    event = {"lastTimestamp": "2026-11-16T04:29:37Z", "involvedObject": {"kind": "VmGroup", "name": "vg-2"}, "reason": "R", "message": "m"}
    assert line_of_event(event) == "04:29:37 VmGroup/vg-2 R: m"
    assert line_of_log('{"level":"info","ts":"2026-11-16T04:29:37Z","msg":"well","object":{"name":"vg-1"}}') == "04:29:37 info  well vg-1"


LINE = json.dumps({"level": "info", "ts": "2026-11-16T04:29:37Z", "msg": "well", "object": {"namespace": "default", "name": "vg-1"}})


@pytest.mark.parametrize("cut", range(len(LINE) + 1))
def test_the_tail_of_a_log_may_begin_anywhere_and_end_in_the_middle(cut: int, tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    count = TAIL_BYTES // len(LINE) + 2
    log.write_text(f"{LINE}\n" * count + LINE[:cut])
    lines = log_lines(log)
    assert set(lines) == {"04:29:37 info  well vg-1"}
    assert count - 4 <= len(lines) < count


def test_a_short_log_is_shown_from_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "manager.log").write_text(f"{LINE}\n")
    assert len(log_lines(tmp_path / "manager.log")) == 1
    assert log_lines(tmp_path / "nowhere") == []


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("obj", [{"metadata": {"name": "x"}}, {"metadata": {"name": "x"}, "spec": {}}], ids=["no spec", "empty spec"])
def test_an_object_without_a_spec_has_a_row_too(kind: str, obj: dict[str, object]) -> None:
    (table,) = tables(Snapshot({(kind, "x"): obj})).values()
    assert [row[0].text for row in table.rows] == ["x"]
