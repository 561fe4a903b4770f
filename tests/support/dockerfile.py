"""Reads the Dockerfile and .dockerignore of the repository as a container engine does."""

from __future__ import annotations

import fnmatch
import re
import shutil
from pathlib import Path

Instruction = tuple[str, str]
ROOT = Path(__file__).parents[2]


def read_instructions() -> list[Instruction]:
    """Each instruction with its arguments, without comments and with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (name, arguments.strip())
        for name, _, arguments in (line.partition(" ") for line in lines if line)
    ]


def read_stages() -> list[list[Instruction]]:
    """The instructions of each stage, from its FROM on."""
    stages: list[list[Instruction]] = []
    for name, arguments in read_instructions():
        if name == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((name, arguments))
    return stages


def is_in_build_context(path: str) -> bool:
    """Whether the engine gets a file: the last matching rule of .dockerignore decides."""
    names = [path, *(parent.as_posix() for parent in Path(path).parents)]
    included = True
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.removeprefix("!")
        if any(
            fnmatch.fnmatchcase(
                f"/{name}", pattern.replace("**/", "*/") if "**" in pattern else f"/{pattern}"
            )
            for name in names
        ):
            included = rule.startswith("!")
    return included


def run_copy(arguments: str, context: Path) -> None:
    """Runs a COPY from the repository; `context` stands for the working directory."""
    *sources, target = arguments.split()
    for source in sources:
        for path in list_context_files(ROOT / source):
            name = path.relative_to(ROOT / source) if (ROOT / source).is_dir() else Path(path.name)
            copy = context / target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def list_context_files(source: Path) -> list[Path]:
    """The files of a source, a file or a folder, that are in the build context."""
    paths = (
        [source]
        if source.is_file()
        else sorted(path for path in source.rglob("*") if path.is_file())
    )
    return [path for path in paths if is_in_build_context(path.relative_to(ROOT).as_posix())]
