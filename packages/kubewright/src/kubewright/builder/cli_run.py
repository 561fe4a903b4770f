"""`kubewright run`: an operator in one file, without a project."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .. import command
from ..flags import FlagError, HelpRequested, parse_command_line
from ..kubeconfig import load_config
from ..manager import Manager, Options
from .single_file import declared_kinds, find_build, find_settings, install_crds, load_module


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--install", is_flag=True, help="Apply the CRDs of the file first.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(file: Path, install: bool, flags: tuple[str, ...]) -> int:
    """Run the operator in a Python file with your kubeconfig.

    The file has classes that extend Controller, Webhook or Conversion, or a function
    build(manager, flags). FLAGS are those of a manager; `kubewright run FILE -help` lists them.

    \b
    Examples:
      kubewright run --install greeting.py
      kubewright run greeting.py -zap-devel -watch-namespaces=default
    """
    module = load_module(file)
    settings, build = find_settings(module), find_build(module)
    name = file.stem.replace("_", "-")
    if install:
        try:
            values = parse_command_line(settings, flags, os.environ, program="run")
        except (FlagError, HelpRequested):
            pass  # `command.run` reports it
        else:
            connection = load_config(values.kubeconfig, values.master, values.context)
            manager = Manager(connection, Options(name=name))
            build(manager, values)
            for crd in install_crds(connection, declared_kinds(manager)):
                click.echo(f"applied {crd}", err=True)
    return command.run(settings, build, name=name, program=f"kubewright run {file}", argv=flags)
