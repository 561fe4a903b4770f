"""The `kubewright` command: what is asked, which change that is, and whether to show it or to write it."""

from __future__ import annotations

import sys

from ..errors import ConfigError, KubewrightError

MISSING = "the builder needs a package that is not installed ({}): pip install 'kubewright[builder]'"


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 if it did what it should, 1 if not, 2 for a wrong command line."""
    try:
        from .commands import kubewright
    except ModuleNotFoundError as error:
        if error.name not in ("click", "tomlkit"):
            raise
        print(f"kubewright: {MISSING.format(error.name)}", file=sys.stderr)
        return 1
    return invoke(kubewright, argv)


def invoke(command: object, argv: list[str] | None) -> int:
    """Run a click command, and turn every failure into words and an exit code."""
    import click

    assert isinstance(command, click.Command)
    try:
        found = command.main(argv, prog_name="kubewright", standalone_mode=False)
        return found if isinstance(found, int) else 0
    except click.Abort:
        print("\nkubewright: interrupted; nothing was written", file=sys.stderr)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (ConfigError, KubewrightError) as error:
        print(f"kubewright: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
