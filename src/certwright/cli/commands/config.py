"""`certwright config`: checks and shows the configuration file of `serve` and `controllers`."""

from __future__ import annotations

from pathlib import Path

import click

from certwright.cli.configuration import (
    API_VERSION,
    COMMANDS,
    DEFAULT_FILE,
    KIND,
    Files,
    Key,
    Setting,
    check_together,
    schema_of,
)
from certwright.cli.errors import AlreadyReported, report, report_error
from certwright.cli.format import echo, print_content
from certwright.cli.options import Folder, json_option

_FILE = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_FILE, metavar="[FILE]"
)
_FOR = click.option(
    "--for",
    "of",
    type=click.Choice(COMMANDS),
    default="serve",
    show_default=True,
    help="The command whose configuration it is.",
)


@click.group(cls=Folder, short_help="Check and show the configuration file of `serve` or `controllers`.")
def command() -> None:
    """Check and show the configuration file that `certwright serve --config FILE` reads.

    Each flag has a key in camelCase: --tls-san is tlsSan. The files conf.d/*.yaml beside FILE are merged in
    the order of their names: lists are appended, any other key may be set once. Texts may contain ${NAME}, a
    variable of the environment, or be file:/PATH, the content of a file.

    \b
    Examples:
      certwright config check /etc/certwright/certwright.yaml
      certwright config show
      certwright config schema > certwright.schema.json
    """


def _context(of: str) -> click.Context:
    root = click.get_current_context().find_root()
    assert isinstance(root.command, click.Group)
    served = root.command.get_command(root, of)
    assert served is not None
    return click.Context(served, info_name=of, parent=root)


def _read(file: Path, of: str) -> Files:
    """The files, if nothing is wrong with them. Else prints each problem."""
    files = Files(file, _context(of))
    for problem in files.problems:
        report_error(str(problem))
    if files.problems:
        raise AlreadyReported
    return files


@command.command()
@_FILE
@_FOR
@json_option()
def check(*, file: Path, of: str, output: str | None) -> None:
    """Check FILE and conf.d/*.yaml beside it, and name the line and the fix of each problem.

    \b
    Examples:
      certwright config check
      certwright config check ./certwright.yaml --for controllers
      certwright config check -o json
    """
    if output is not None:
        _check_for_programs(file, of, output)
        return
    settings = _read(file, of).settings
    check_together(_context(of), file)
    count = len({setting.path for setting in settings})
    report(f"{file}: valid; {len(settings)} settings in {count} files")


def _check_for_programs(file: Path, of: str, form: str) -> None:
    files = Files(file, _context(of))
    problems = [
        {"file": str(problem.path), "line": problem.line or None, "message": problem.text}
        for problem in files.problems
    ]
    if not problems:
        try:
            check_together(_context(of), file)
        except click.ClickException as error:
            problems.append({"file": str(file), "line": None, "message": error.format_message()})
    paths = sorted({str(setting.path) for setting in files.settings})
    content = {"valid": not problems, "settings": len(files.settings), "files": paths, "problems": problems}
    print_content(content, form)
    if problems:
        raise AlreadyReported


@command.command()
@_FILE
@_FOR
@json_option("As JSON or YAML, without comments.")
def show(*, file: Path, of: str, output: str | None) -> None:
    """Print the merged configuration, with the file and line of each key as comments.

    Credentials are shown as they are written.

    \b
    Examples:
      certwright config show
      certwright config show ./certwright.yaml -o json
    """
    files = _read(file, of)
    by_key: dict[str, list[Setting]] = {}
    for setting in files.settings:
        by_key.setdefault(setting.key, []).append(setting)
    if output is not None:
        merged = {name: _shown(files.keys[name], settings) for name, settings in by_key.items()}
        print_content({"apiVersion": API_VERSION, "kind": KIND, **merged}, output)
        return
    echo(f"apiVersion: {API_VERSION}\nkind: {KIND}")
    for name, settings in by_key.items():
        for setting in settings:
            echo(f"# {setting.path}, line {setting.line}")
        print_content({name: _shown(files.keys[name], settings)}, "yaml")


def _shown(key: Key, settings: list[Setting]) -> object:
    return [value for setting in settings for value in setting.shown] if key.is_list else settings[0].shown


@command.command()
@_FOR
def schema(*, of: str) -> None:
    """Print the JSON schema of the configuration, with the help of each flag.

    \b
    Examples:
      certwright config schema
      certwright config schema --for controllers
    """
    print_content(schema_of(_context(of).command, of), "json")
