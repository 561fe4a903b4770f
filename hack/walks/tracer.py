"""The child: runs the `manager` command of a checkout with a profile hook.

    python hack/walks/tracer.py ROOT TRACE_FILE [FLAG...]

It uses only the standard library, since it runs with the source of another checkout.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TextIO

OURS = ("src/vsphere_operators/", "packages/kubewright/src/kubewright/")
_NOT_OURS = "packages/kubewright/src/kubewright/testing/"
CLONE_METHODS = {"CloneVM_Task", "Clone"}


@dataclass
class _Step:
    """The functions of ours that one callback of the event loop enters."""

    began: float
    label: str = ""
    task: int = 0
    functions: dict[str, None] = field(default_factory=dict)


class Tracer:
    """Writes one JSON line per step, per answered request and per clone that is sent."""

    def __init__(self, root: Path, out: TextIO) -> None:
        self.root, self.out = root, out
        self._names: dict[CodeType, str] = {}
        self._steps = threading.local()
        self._lock = threading.Lock()

    def install(self) -> None:
        """Trace this thread, all that it starts, and the requests of aiohttp."""
        self._wrap_callbacks()
        self._wrap_requests()
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def name_of(self, code: CodeType) -> str:
        """`path:function` of a function of ours, "" for all other code."""
        name = self._names.get(code)
        if name is None:
            name = self._names[code] = self._read_name(code)
        return name

    def _read_name(self, code: CodeType) -> str:
        if code.co_name == "<module>" or not code.co_filename.startswith(f"{self.root}/"):
            return ""
        path = code.co_filename.removeprefix(f"{self.root}/")
        ours = path.startswith(OURS) and not path.startswith(_NOT_OURS)
        return f"{path}:{code.co_qualname}" if ours else ""

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not (name := self.name_of(frame.f_code)):
            if event == "return":
                self._end_thread_step(frame)
            return
        step: _Step | None = getattr(self._steps, "step", None)
        if step is None:
            # No callback of the loop is running: the start of the process, or a worker thread.
            step = self._steps.step = _Step(time.monotonic(), f"thread {name}")
            self._steps.outermost = frame
        if not step.label:
            task = _running_task()
            step.task = id(task) if task else 0
            step.label = _label_of(task) if task else f"callback {name}"
        step.functions[name] = None

    def _end_thread_step(self, frame: FrameType) -> None:
        if getattr(self._steps, "outermost", None) is frame:
            self._write_step(self._steps.step)
            self._steps.step = self._steps.outermost = None

    def _write_step(self, step: _Step) -> None:
        entry = {"began": step.began, "label": step.label, "task": step.task}
        self._write(step={**entry, "functions": [*step.functions]})

    def _write(self, **entry: object) -> None:
        with self._lock:
            self.out.write(json.dumps(entry) + "\n")
            self.out.flush()

    def _wrap_callbacks(self) -> None:
        # The one place where steps begin; typed as Any, since methods are replaced.
        handle_type: Any = asyncio.Handle
        run = handle_type._run

        @functools.wraps(run)
        def traced_run(handle: asyncio.Handle) -> None:
            before = getattr(self._steps, "step", None)
            step = self._steps.step = _Step(time.monotonic())
            try:
                run(handle)
            finally:
                self._steps.step = before
                if step.functions:
                    self._write_step(step)

        handle_type._run = traced_run

    def _wrap_requests(self) -> None:
        import aiohttp

        session_type: Any = aiohttp.ClientSession
        request = session_type._request

        @functools.wraps(request)
        async def traced_request(session: Any, method: str, url: Any, **options: Any) -> Any:
            body = options.get("data")
            content = body if isinstance(body, bytes) else str(body or "").encode()
            # `<CloneVM_Task ` opens the body of the call; a task that is read has it as a value.
            if b"<CloneVM_Task " in content:
                self._write(clone=self._stack())
            sent = time.monotonic()
            response = await request(session, method, url, **options)
            path = getattr(url, "path", str(url))
            self._write(
                answer={
                    "sent": sent,
                    "at": time.monotonic(),
                    "task": id(_running_task()),
                    "method": method,
                    "path": path,
                    "status": response.status,
                    "body": content.decode(errors="replace") if "/status" in path else "",
                }
            )
            return response

        session_type._request = traced_request

    def _stack(self) -> list[dict[str, object]]:
        """The frames of ours, the outermost first, and whether each names the clone method."""
        frames: list[dict[str, object]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if name := self.name_of(code):
                texts = [const for const in code.co_consts if isinstance(const, str)]
                names_clone = not CLONE_METHODS.isdisjoint([*code.co_names, *texts])
                frames.append({"function": name, "names_clone": names_clone})
            frame = frame.f_back
        return frames[::-1]


def _running_task() -> asyncio.Task[Any] | None:
    """The task that runs now in this thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _label_of(task: asyncio.Task[Any]) -> str:
    """The name of the coroutine of a task."""
    return f"task {getattr(task.get_coro(), '__qualname__', '')}"


def _run_traced_manager(root: Path, out: Path, flags: Sequence[str]) -> int:
    """Run the `manager` command of the project in this process, with the hook installed."""
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["manager"].partition(":")
    # Imports are not traced, and with the hook they would take longer.
    main: Callable[[], int] = getattr(importlib.import_module(module), function)
    sys.argv = ["manager", *flags]
    with out.open("w") as lines:
        Tracer(root, lines).install()
        try:
            return main()
        finally:
            sys.setprofile(None)


if __name__ == "__main__":
    raise SystemExit(_run_traced_manager(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
