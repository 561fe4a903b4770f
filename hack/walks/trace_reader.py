"""Reads the trace of the child, and counts the files of a walk and the frames of a clone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .tracer import CLONE_METHODS

RECONCILE = "VmGroupController.reconcile"


class Trace:
    """What the child has written so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.steps: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.clones: list[list[dict[str, Any]]] = []

    def refresh(self) -> None:
        """Read the lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as lines:
            lines.seek(self._read)
            new = lines.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            for kind, entries in (
                ("step", self.steps),
                ("answer", self.answers),
                ("clone", self.clones),
            ):
                if kind in entry:
                    entries.append(entry[kind])

    def status_answer(
        self, since: float, plural: str, fits: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        """The first answered write of a status that fits, with the times of request and answer."""
        self.refresh()
        for answer in self.answers:
            path, fresh = answer["path"], answer["at"] >= since and answer["status"] < 300
            is_status = f"/{plural}/" in path and path.endswith("/status")
            if not fresh or not is_status or answer["method"] not in ("PATCH", "PUT"):
                continue
            if fits(json.loads(answer["body"]).get("status", {})):
                return answer
        return None

    def background(self, since: float, until: float) -> dict[str, set[str]]:
        """The functions that each label enters in this time."""
        self.refresh()
        functions: dict[str, set[str]] = {}
        for step in self.steps:
            if since <= step["began"] <= until:
                functions.setdefault(step["label"], set()).update(step["functions"])
        for label, entered in functions.items():
            # What a reconcile enters would count as background in every walk.
            if busy := [name for name in entered if name.endswith("Controller.reconcile")]:
                raise SystemExit(
                    f"the manager was not idle before the walks: {label} entered {busy}"
                )
        return functions


def walk_files(
    trace: Trace, background: Mapping[str, set[str]], since: float, answer: Mapping[str, Any]
) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The files of a walk in order of first entry with their functions, and its steps."""
    files: dict[str, list[str]] = {}
    steps: list[dict[str, Any]] = []
    for step in trace.steps:
        if not since <= step["began"] <= answer["at"]:
            continue
        if step["began"] > answer["sent"] and step["task"] != answer["task"]:
            continue
        if set(step["functions"]) <= background.get(step["label"], set()):
            continue
        steps.append(step)
        for function in step["functions"]:
            path, _, name = function.partition(":")
            names = files.setdefault(path, [])
            if name not in names:
                names.append(name)
    return files, steps


def clone_depth(frames: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Frames and files below reconcile, to the function that names the clone and to the wire."""
    names = [frame["function"] for frame in frames]
    top = [n for n, name in enumerate(names) if name.endswith(f":{RECONCILE}")]
    if not top:
        raise SystemExit(f"the clone is not sent in the task of {RECONCILE}, but in: {names}")
    below = frames[top[-1] + 1 :]
    naming = [n for n, frame in enumerate(below) if frame["names_clone"]]
    if not naming:
        raise SystemExit(f"no frame names {' or '.join(sorted(CLONE_METHODS))}: {names}")
    to_wire = [frame["function"] for frame in below]
    to_call = to_wire[: naming[-1] + 1]
    files, files_to_wire = _distinct_files(to_call), _distinct_files(to_wire)
    return {
        "frames": len(to_call),
        "files": len(files),
        "frames_to_wire": len(to_wire),
        "files_to_wire": len(files_to_wire),
        "stack": to_wire,
        "file_list": files_to_wire,
    }


def _distinct_files(functions: Sequence[str]) -> list[str]:
    """The files of functions, each once, in their order."""
    return [*dict.fromkeys(function.partition(":")[0] for function in functions)]
