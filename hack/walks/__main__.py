"""Runs the walks and prints the files that each enters."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import __doc__ as description
from .environment import control_plane, simulator, start_manager, wait_for
from .trace_reader import RECONCILE, Trace, clone_depth, walk_files
from .triggers import (
    BETWEEN_SECONDS,
    SETTLE_SECONDS,
    Walk,
    create_objects,
    wait_for_group,
    walks_of,
)

_WALKS = ("host-edit", "host-change", "scale-up", "gpu", "clone")
_IDLE_SECONDS = 20.0
_REPEATS = 3
_ANSWER_WITHIN_SECONDS = 40.0


def _measure(root: Path, wanted: Sequence[str], repeats: int, keep: Path | None) -> dict[str, Any]:
    """Start everything, run the walks, and end everything."""
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="walks-")))
        folder.mkdir(parents=True, exist_ok=True)
        api = stack.enter_context(control_plane(root))
        vcenter = stack.enter_context(simulator(root, folder / "vcsim"))
        hosts = vcenter.empty_hosts()
        create_objects(api, hosts[0])
        start_manager(stack, root, folder, api, vcenter)
        trace = Trace(folder / "trace")
        try:
            wait_for_group(api, 1)
            time.sleep(SETTLE_SECONDS)
            idle_from = time.monotonic()
            time.sleep(_IDLE_SECONDS)
            background = trace.background(idle_from, time.monotonic())
            results: dict[str, Any] = {}
            for walk in walks_of(api, vcenter, hosts):
                if walk.name in wanted or (walk.name == "scale-up" and "clone" in wanted):
                    clones_before = len(trace.clones)
                    result = _run_repeats(walk, repeats, trace, background)
                    if walk.name in wanted:
                        results[walk.name] = result
                    if walk.name == "scale-up" and "clone" in wanted:
                        results["clone"] = clone_depth(trace.clones[clones_before])
        except SystemExit:
            print(_tail(folder / "manager.log"), file=sys.stderr)
            raise
        return results


def _tail(log: Path, lines: int = 10) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _run_repeats(
    walk: Walk, repeats: int, trace: Trace, background: Mapping[str, set[str]]
) -> dict[str, Any]:
    """Run a walk several times, and keep the files that most runs enter."""
    walk.prepare()
    runs = []
    for number in range(repeats):
        runs.append(_run_walk(walk, number, trace, background))
        walk.undo()
        time.sleep(BETWEEN_SECONDS)
    entered = [*dict.fromkeys(path for run in runs for path in run["file_list"])]
    counts = {path: sum(path in run["file_list"] for run in runs) for path in entered}
    most = [path for path in entered if counts[path] * 2 > repeats]
    return {
        "files": len(most),
        "files_of_runs": [len(run["file_list"]) for run in runs],
        "file_list": most,
        "in_fewer_runs": [path for path in entered if path not in most],
        "runs": runs,
    }


def _run_walk(
    walk: Walk, number: int, trace: Trace, background: Mapping[str, set[str]]
) -> dict[str, Any]:
    """Pull the trigger, wait for the result, and list the files between them."""
    began = time.monotonic()
    walk.trigger(number)
    answer = wait_for(
        lambda: trace.status_answer(began, walk.plural, walk.is_result),
        _ANSWER_WITHIN_SECONDS,
        f"the status patch of {walk.name} is answered",
    )
    # The step that receives the answer began before the answer; its line is written after it.
    time.sleep(0.5)
    trace.refresh()
    files, steps = walk_files(trace, background, began, answer)
    seconds = round(answer["at"] - began, 3)
    return {"seconds": seconds, "file_list": [*files], "functions": files, "steps": steps}


def _report(results: Mapping[str, Any]) -> str:
    """The results as text."""
    lines: list[str] = []
    for name, result in results.items():
        if name == "clone":
            lines.append(
                f"clone: {result['frames']} frames and {result['files']} files below {RECONCILE}; "
                f"to the wire {result['frames_to_wire']} and {result['files_to_wire']}"
            )
            lines += [f"    {number:3} {frame}" for number, frame in enumerate(result["stack"], 1)]
        else:
            runs = ", ".join(map(str, result["files_of_runs"]))
            lines.append(f"{name}: {result['files']} files (in each run: {runs})")
            lines += [f"    {n:3} {path}" for n, path in enumerate(result["file_list"], 1)]
            lines += [f"      - {path} (in fewer runs)" for path in result["in_fewer_runs"]]
    return "\n".join(lines)


def main() -> int:
    default = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    names = ", ".join(_WALKS)
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"of {names}; default all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--steps", action="store_true", help="print JSON with all steps")
    parser.add_argument("--root", type=Path, default=default, help="the worktree to measure")
    parser.add_argument("--repeats", type=int, default=_REPEATS, help="runs of each walk")
    parser.add_argument("--keep", type=Path, help="a new folder in which logs and trace stay")
    options = parser.parse_args()
    root = options.root.resolve()
    if unknown := [walk for walk in options.walks if walk not in _WALKS]:
        parser.error(f"unknown: {' '.join(unknown)}; the walks are {', '.join(_WALKS)}")
    # So that cleanup runs after a signal, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    results = _measure(root, options.walks or _WALKS, options.repeats, options.keep)
    if not options.steps:
        for result in results.values():
            result.pop("runs", None)
    print(json.dumps(results, indent=2) if options.json or options.steps else _report(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
