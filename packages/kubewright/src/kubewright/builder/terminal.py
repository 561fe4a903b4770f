"""What the commands share at the terminal: options, questions, and the summary of a change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ..errors import ConfigError
from .changeset import ChangeSet

# More lines than fit on a screen hide the files that the user has to edit.
_MAX_LISTED_FILES = 20


def resolve_folder(context: click.Context, parameter: click.Parameter, folder: Path) -> Path:
    return folder.resolve()


PROJECT_OPTION = click.option(
    "--project",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    callback=resolve_folder,
    help="Folder of the project.",
)
DRY_RUN_OPTION = click.option(
    "--dry-run", is_flag=True, help="Write nothing; show the changes as a diff."
)
FORCE_OPTION = click.option(
    "--force", is_flag=True, help="Overwrite existing files, also those with uncommitted changes."
)


def get_or_prompt(
    option: str,
    value: str | None,
    question: str,
    check: Callable[[str], str],
    suggestion: str | None = None,
) -> str:
    """The checked value; if it is missing, the user is asked until the answer is valid."""
    if value is not None:
        return check(value)
    if not sys.stdin.isatty():
        raise click.UsageError(f"{option} is required when standard input is not a terminal")

    def check_answer(answer: str) -> str:
        try:
            return check(answer)
        except ConfigError as error:
            # click asks again after a UsageError.
            raise click.UsageError(str(error)) from None

    return str(click.prompt(question, value_proc=check_answer, default=suggestion))


def show_or_write(change: ChangeSet, *, dry_run: bool, force: bool) -> None:
    """Show the change, or check it, write it and list what was written."""
    if dry_run:
        click.echo(change.diff() or "Nothing would change.")
        return
    if not force:
        change.check_conflicts()
    click.echo("\n".join(_summarize_files(write_change(change, force=force), change.removed)))


def write_change(change: ChangeSet, *, force: bool) -> list[str]:
    """Write the change unless git could not undo it; returns the paths that changed."""
    if not force and not change.check_committed():
        click.echo(
            f"kubewright: {change.root} is not in a git repository: "
            "this change cannot be undone with git",
            err=True,
        )
    return change.write()


def _summarize_files(paths: Sequence[str], removed: Sequence[str]) -> list[str]:
    generated = [path for path in paths if path.startswith("config/")]
    if len(paths) <= _MAX_LISTED_FILES:
        generated = []
    lines = [
        f"removed {path}" if path in removed else f"wrote {path}"
        for path in paths
        if path not in generated
    ]
    return [*lines, f"updated config/ ({len(generated)} files)"] if generated else lines
