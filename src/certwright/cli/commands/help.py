"""`certwright help`."""

from __future__ import annotations

import click


@click.command(short_help="Show the help of a command.")
@click.argument("words", nargs=-1, metavar="[COMMAND]…")
@click.pass_context
def command(context: click.Context, /, *, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its option --help does; without one the list of all commands.

    \b
    Examples:
      certwright help
      certwright help create certificate
    """
    shown = context.find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"`{shown.command_path}` has no commands of its own")
        _, subcommand, _ = shown.command.resolve_command(shown, [word])
        assert subcommand is not None
        shown = click.Context(subcommand, info_name=word, parent=shown)
    click.echo(shown.get_help())
