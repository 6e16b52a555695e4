"""`certwright completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, /, *, shell: str) -> None:
    """Print the script that completes commands and options in bash, zsh or fish.

    \b
    Examples:
      source <(certwright completion bash)              this shell only
      certwright completion bash > /etc/bash_completion.d/certwright
      certwright completion zsh > "${fpath[1]}/_certwright"
      certwright completion fish > ~/.config/fish/completions/certwright.fish
    """
    root = context.find_root()
    maker = get_completion_class(shell)
    assert maker is not None
    name = root.info_name or "certwright"
    click.echo(maker(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
