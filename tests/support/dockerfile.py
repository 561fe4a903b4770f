"""The repository's Dockerfile and .dockerignore, read as an engine reads them: as much of their language as they use."""

from __future__ import annotations

import fnmatch
import re
import shutil
from pathlib import Path

Instruction = tuple[str, str]
ROOT = Path(__file__).parents[2]


def read_instructions() -> list[Instruction]:
    """Each instruction with what follows it, comments gone and continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line)
    ]


def read_stages() -> list[list[Instruction]]:
    """The instructions of each stage, from its FROM on."""
    found: list[list[Instruction]] = []
    for word, rest in read_instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def is_in_build_context(path: str) -> bool:
    """Whether the engine gets to see a file: the last rule of .dockerignore that names it or a folder above it decides."""
    names = [path, *(parent.as_posix() for parent in Path(path).parents)]
    seen = True
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.removeprefix("!")
        if any(
            fnmatch.fnmatchcase(
                f"/{name}", pattern.replace("**/", "*/") if "**" in pattern else f"/{pattern}"
            )
            for name in names
        ):
            seen = rule.startswith("!")
    return seen


def run_copy(rest: str, context: Path) -> None:
    """A COPY from the repository: what is sent of its sources, in a folder that stands for the working directory."""
    *sources, target = rest.split()
    for source in sources:
        for path in list_context_files(ROOT / source):
            name = path.relative_to(ROOT / source) if (ROOT / source).is_dir() else Path(path.name)
            place = context / target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def list_context_files(source: Path) -> list[Path]:
    """The files that an engine sees of a source, which may be one."""
    paths = (
        [source]
        if source.is_file()
        else sorted(path for path in source.rglob("*") if path.is_file())
    )
    return [path for path in paths if is_in_build_context(path.relative_to(ROOT).as_posix())]
