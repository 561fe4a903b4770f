"""What commands share at the terminal: options, questions, what was written, what is next."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .changeset import ChangeSet
from .exchange import find_interrupted, lock_project, recover_all
from .project import Project

_MAX_LISTED_FILES = 20


def resolve_folder(context: click.Context, parameter: click.Parameter, folder: Path) -> Path:
    """The folder of a project, without links on the way to it."""
    return folder.resolve()


@contextmanager
def open_project(root: Path, *, writes: bool = True) -> Iterator[Project]:
    """The project in a folder: what a command reads of it is still so when it writes."""
    with lock_folder(root, writes=writes):
        yield Project.read(root)


@contextmanager
def lock_folder(root: Path, *, writes: bool = True) -> Iterator[None]:
    """A folder for this command alone, with nothing half written in it; one that writes nothing only says what is half written."""
    if not root.is_dir():
        yield
    elif not writes:
        _print_warnings(find_interrupted(root))
        yield
    else:
        with lock_project(root) as sure:
            _print_warnings(recover_all(root) if sure else [])
            yield


def _print_warnings(found: Sequence[str]) -> None:
    """Say what has to be known beside what was asked for."""
    for words in found:
        click.echo(f"kubewright: {words}", err=True)


PROJECT_OPTION = click.option(
    "--project",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    callback=resolve_folder,
    help="The folder of the project.",
)
DRY_RUN_OPTION = click.option(
    "--dry-run", is_flag=True, help="Write nothing; show what would change as a diff."
)
FORCE_OPTION = click.option("--force", is_flag=True, help="Overwrite files that are there.")


def get_or_prompt(
    option: str, value: str | None, words: str, check: Any, suggestion: str | None = None
) -> str:
    """The value, checked; where it is missing a person at the terminal is asked, again until it is right."""
    if value is not None:
        return str(check(value))
    if not sys.stdin.isatty():
        raise click.UsageError(f"{option} is missing, and there is no terminal to ask at")

    def checked(text: str) -> str:
        try:
            return str(check(text))
        except ConfigError as error:
            raise click.UsageError(str(error)) from None

    return str(click.prompt(words, value_proc=checked, default=suggestion))


def show_or_write(change: ChangeSet, *, dry_run: bool, force: bool) -> None:
    """Show the change, or write it and say what was written."""
    if dry_run:
        click.echo(change.diff() or "nothing would change")
        return
    if not force:
        change.check_conflicts()
    click.echo("\n".join(_summarize_files(change.write(), change.removed)))


def _summarize_files(paths: Sequence[str], removed: Sequence[str]) -> list[str]:
    """Which files were written or removed; of many, those of config/ by their number alone."""
    generated = (
        [path for path in paths if path.startswith("config/")]
        if len(paths) > _MAX_LISTED_FILES
        else []
    )
    rest = [
        f"removed {path}" if path in removed else f"wrote {path}"
        for path in paths
        if path not in generated
    ]
    return [*rest, f"wrote config/ ({len(generated)} files)"] if generated else rest


def print_next_steps(words: str, files: Sequence[str], *, needs_format: bool) -> None:
    """Say what a person does next: the files to edit, then the checks."""
    click.echo(f"\n{words} Next:")
    for path in files:
        click.echo(f"  edit {path}")
    if needs_format:
        click.echo("  make format")
    click.echo("  make test")
