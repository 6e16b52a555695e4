"""Options that several commands share, and the adapter from coroutines to commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from certwright.cli import completion, lazy
from certwright.cli.flags import Decorator, flag, flag_options, seconds, single

if TYPE_CHECKING:
    from certwright.kube.api.manifests import Manifests

F = TypeVar("F", bound=Callable[..., Any])


def _not_empty(value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("is empty; leave the option out, or name a namespace")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options that select the server. None: not given."""

    kubeconfig: Path | None = flag(
        "--kubeconfig",
        "Path to the kubeconfig; without it $KUBECONFIG, ./certwright-data/kubeconfig, or the service's.",
        metavar="FILE",
        type=click.Path(path_type=Path, readable=False),  # The error has the fix.
    )
    context: str | None = flag(
        "--context", "The context of the kubeconfig to use; without it its current one.", metavar="NAME"
    )
    namespace: str | None = flag(
        "-n, --namespace",
        "The namespace; without it the kubeconfig's, or else `default`.",
        metavar="NS",
        parse=_not_empty,
        shell_complete=completion.namespaces,
    )


server_options = flag_options("server", ServerOptions, namespace=None)
"""Adds `--kubeconfig` and `--context`; the function gets them as `server: ServerOptions`."""
namespaced_server_options = flag_options("server", ServerOptions)
"""As `server_options`, with `-n/--namespace`."""
all_namespaces_option = click.option(
    "-A", "--all-namespaces", is_flag=True, help="All namespaces instead of one."
)
"""Adds `-A/--all-namespaces` as `all_namespaces: bool`."""
selector_option = click.option(
    "-l",
    "--selector",
    metavar="SELECTOR",
    default="",
    help="Only objects whose labels match, e.g. `app=web,tier!=test`.",
)
"""Adds `-l/--selector` as `selector: str`."""

no_headers_option = click.option("--no-headers", is_flag=True, help="Print a table without its first line.")
"""Adds `--no-headers` as `no_headers: bool`."""


def json_option(text: str = "As JSON or YAML instead of text.") -> Decorator:
    """Add `-o json|yaml` as `output: str | None`."""
    return click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help=text)


def cluster_namespace_option(
    parameter: str = "cluster_resource_namespace",
    *,
    text: str = "Namespace of the Secrets of ClusterIssuers.",
) -> Decorator:
    """Add `--cluster-resource-namespace` as that parameter."""
    return single(parameter, flag("--cluster-resource-namespace", text, metavar="NS", default="kube-system"))


class Words(click.Choice[str]):
    """A choice in upper or lower case, whose error lists the words as the help does."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's
        """See `click.Choice`."""
        return f"{value!r} is not one of {', '.join(self.choices)}"


def timeout_option(*, default: str, text: str) -> Decorator:
    """Add `--timeout` as `timeout_s: float`, in seconds."""
    return single("timeout_s", seconds("--timeout", f"{text}; e.g. 30, 30s or 5m.", default=default))


def file_option(*, required: bool) -> Callable[[F], F]:
    """Add `-f/--filename`, which may be repeated, as `manifests: Manifests`, None if it is not given."""
    return click.option(
        "-f",
        "--filename",
        "manifests",
        callback=read_manifests,
        metavar="FILE",
        multiple=True,
        required=required,
        help="A YAML or JSON file, a folder of such files, or `-` for standard input; may be repeated.",
    )


def read_manifests(
    _context: click.Context, _option: click.Parameter, names: tuple[str, ...]
) -> Manifests | None:
    """Read the files while parsing the command line: before any event loop, which would not see Ctrl-C
    while it waits for standard input."""
    return lazy.sources.read(names) if names else None


class Folder(click.Group):
    """A group of subcommands, which lists them in the error for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but the error for an unknown name lists the valid ones."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.commands:
            could = " or ".join(f"`{ctx.command_path} {known}`" for known in sorted(self.commands))
            raise click.UsageError(f"there is no command `{ctx.command_path} {name}`, but {could}", ctx)
        return super().resolve_command(ctx, args)


def asynchronous(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the coroutine function to its end; for commands that are only clients of the server."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        import asyncio  # a quarter of the time that --help takes

        asyncio.run(command(*args, **kwargs))

    return run
