"""Walking a tutorial: every command in it run, every file in it written, every line that it shows looked for.

```sh               commands, run with `bash -e` where the last block ended
```sh background    the same, left running until the end
```sh yours         for a reader alone: what a test cannot run, and the test says so
```python a/b.py    a file, written as it stands
```text             lines, each of which the last commands must have printed, or those in the background print soon
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

BLOCK = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHIN_SECONDS = 300
# What only shows that it works is not part of the road, here as in the originals.
SHOWING = re.compile(r"kubectl (-n \S+ )?(get|wait|patch|scale|delete) ")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    word: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands in it, each on one line."""
        if self.language != "sh":
            return []
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return [Block(*found) for found in BLOCK.findall(page.read_text())]


@dataclass
class Walk:
    """A reader at a terminal."""

    folder: Path
    environ: Mapping[str, str]
    printed: str = ""
    log: Path | None = None
    left_running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, page: Path) -> None:
        """Do all that the page says."""
        for block in blocks(page):
            self.take(block)

    def take(self, block: Block) -> None:
        """Do what one block says."""
        match block.language, block.word:
            case "sh", "":
                self.run(block.text)
            case "sh", "background":
                self.leave_running(block.text)
            case "text", _:
                self.look_for(block.text.splitlines())
            case _, path if path and block.language != "sh":
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / path).write_text(block.text)

    def look_for(self, lines: Sequence[str]) -> None:
        """Find each line in what was printed; what runs in the background gets the time that it needs."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while missing := [line for line in lines if line not in self.said()]:
            assert self.log is not None, f"{missing} not in:\n{self.said()}"
            assert time.monotonic() < deadline, f"{missing} not in:\n{self.said()}"
            time.sleep(0.1)

    def said(self) -> str:
        """What the last block printed so far."""
        return self.printed if self.log is None else self.log.read_text()

    def run(self, text: str) -> None:
        """Run commands, and stay where they ended."""
        script = f"set -eo pipefail\n{text}\npwd > {self.environ['WALK_PLACE']}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=WITHIN_SECONDS,
        )
        self.printed, self.log = done.stdout + done.stderr, None
        assert done.returncode == 0, f"{text}\n{self.printed}"
        self.folder = Path(Path(self.environ["WALK_PLACE"]).read_text().strip())

    def leave_running(self, text: str) -> None:
        """Start commands and go on."""
        self.log = self.folder / "background.log"
        with self.log.open("wb") as log:
            self.left_running.append(
                subprocess.Popen(
                    ["bash", "-c", text],
                    cwd=self.folder,
                    env=self.environ,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def end(self) -> None:
        """End what was left running."""
        for process in self.left_running:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


@dataclass(frozen=True)
class Counts:
    """What a reader has to do."""

    commands: int
    files: int
    lines: int


def counted(page: Path, scaffold: Mapping[str, str]) -> Counts:
    """Commands that build or deploy, files touched, and lines in them that the scaffold did not have."""
    found = blocks(page)
    files = {
        block.word: block.text
        for block in found
        if block.language not in ("sh", "text") and block.word
    }
    edited = {file for block in found for command in block.commands for file in edited_by(command)}
    lines = sum(len(added(scaffold.get(path, ""), text)) for path, text in files.items()) + len(
        edited
    )
    typed = [command for block in found for command in block.commands if not SHOWING.match(command)]
    return Counts(len(typed), len(files.keys() | edited), lines)


def added(old: str, new: str) -> list[str]:
    """The lines of the new text that are not in the old one, but for empty ones."""
    compared = difflib.ndiff(old.splitlines(), new.splitlines())
    return [line for line in compared if line.startswith("+ ") and line[2:].strip()]


def edited_by(command: str) -> Iterator[str]:
    """Files that a command edits in a person's place."""
    if found := re.search(r"^sed -i .* (\S+)$|>> (\S+)$", command.strip()):
        yield found[1] or found[2]
