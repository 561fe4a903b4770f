"""Runs a tutorial: executes its commands, writes its files and checks the output that it shows.

```sh               commands, run with `bash -e` in the directory where the last block ended
```sh background    the same, left running until the end
```sh yours         for readers only: a test cannot run it
```python a/b.py    a file, written as shown
```text             lines that the last commands printed, or that the background prints soon
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BLOCK_PATTERN = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_SECONDS = 300
# Commands that only show the result are not counted, for kubebuilder neither.
INSPECTION_COMMAND = re.compile(r"kubectl (-n \S+ )?(get|wait|patch|scale|delete) ")


@dataclass(frozen=True)
class Block:
    language: str
    argument: str
    text: str

    @property
    def commands(self) -> list[str]:
        if self.language != "sh":
            return []
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def fenced_blocks(page: Path) -> list[Block]:
    return [Block(*groups) for groups in BLOCK_PATTERN.findall(page.read_text())]


@dataclass
class TutorialRunner:
    """Runs blocks as a reader at a terminal would."""

    folder: Path
    environ: Mapping[str, str]
    output: str = ""
    background_log: Path | None = None
    background_processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run_page(self, page: Path) -> None:
        for block in fenced_blocks(page):
            self.run_block(block)

    def run_block(self, block: Block) -> None:
        match block.language, block.argument:
            case "sh", "":
                self.run_commands(block.text)
            case "sh", "background":
                self.start_background(block.text)
            case "text", _:
                self.expect_lines(block.text.splitlines())
            case _, path if path and block.language != "sh":
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / path).write_text(block.text)

    def expect_lines(self, lines: Sequence[str]) -> None:
        """Assert each line in the output; for a background command, wait for it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while missing := [line for line in lines if line not in self.read_output()]:
            assert self.background_log is not None, f"{missing} not in:\n{self.read_output()}"
            assert time.monotonic() < deadline, f"{missing} not in:\n{self.read_output()}"
            time.sleep(0.1)

    def read_output(self) -> str:
        return self.output if self.background_log is None else self.background_log.read_text()

    def run_commands(self, text: str) -> None:
        script = f"set -eo pipefail\n{text}\npwd > {self.environ['TUTORIAL_FOLDER_FILE']}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        self.output, self.background_log = done.stdout + done.stderr, None
        assert done.returncode == 0, f"{text}\n{self.output}"
        self.folder = Path(Path(self.environ["TUTORIAL_FOLDER_FILE"]).read_text().strip())

    def start_background(self, text: str) -> None:
        self.background_log = self.folder / "background.log"
        with self.background_log.open("wb") as log:
            self.background_processes.append(
                subprocess.Popen(
                    ["bash", "-c", text],
                    cwd=self.folder,
                    env=self.environ,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def stop_background(self) -> None:
        for process in self.background_processes:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


@dataclass(frozen=True)
class TutorialCounts:
    commands: int
    files: int
    lines: int


def count_tutorial(page: Path, scaffold: Mapping[str, str]) -> TutorialCounts:
    """Count commands that build or deploy, touched files, and lines not in the scaffold."""
    blocks = fenced_blocks(page)
    files = {
        block.argument: block.text
        for block in blocks
        if block.language not in ("sh", "text") and block.argument
    }
    edited = {
        file
        for block in blocks
        for command in block.commands
        for file in list_edited_files(command)
    }
    lines = sum(
        len(added_lines(scaffold.get(path, ""), text)) for path, text in files.items()
    ) + len(edited)
    typed = [
        command
        for block in blocks
        for command in block.commands
        if not INSPECTION_COMMAND.match(command)
    ]
    return TutorialCounts(len(typed), len(files.keys() | edited), lines)


def added_lines(old: str, new: str) -> list[str]:
    compared = difflib.ndiff(old.splitlines(), new.splitlines())
    return [line for line in compared if line.startswith("+ ") and line[2:].strip()]


def list_edited_files(command: str) -> Iterator[str]:
    if match := re.search(r"^sed -i .* (\S+)$|>> (\S+)$", command.strip()):
        yield match[1] or match[2]
