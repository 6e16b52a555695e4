"""`certwright completion`, `crds`, `help` and `version`: what needs no server."""

from __future__ import annotations

import platform

import click
from click.shell_completion import get_completion_class

from certwright import __version__
from certwright.cli.format import print_content
from certwright.cli.options import json_option
from certwright.kube.api.yaml_codec import write_yaml
from certwright.resources.crds import custom_resource_definitions


@click.command(short_help="Print the CustomResourceDefinitions for a real Kubernetes cluster.")
def crds() -> None:
    """Print the CustomResourceDefinitions as YAML, for a Kubernetes cluster: cert-manager's and issuer sets'.

    After that, `certwright controllers --kubeconfig FILE` issues certificates in that cluster.

    \b
    Example:
      certwright crds | kubectl apply --server-side -f -
    """
    click.echo("---\n".join(write_yaml(definition) for definition in custom_resource_definitions()), nl=False)


@click.command(short_help="Show the help of a command.")
@click.argument("words", nargs=-1, metavar="[COMMAND]…")
@click.pass_context
def help_command(context: click.Context, /, *, words: tuple[str, ...]) -> None:
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


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
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


@click.command(short_help="Print the version.")
@json_option()
def version(*, output: str | None) -> None:
    """Print the version of certwright, and of the Python it runs on.

    \b
    Example:
      certwright version
    """
    python, system = platform.python_version(), platform.system()
    if output is not None:
        print_content({"certwright": __version__, "python": python, "system": system}, output)
    else:
        click.echo(f"certwright {__version__} (Python {python}, {system})")
