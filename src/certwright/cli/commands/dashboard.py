"""`certwright dashboard`."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from urllib.parse import urljoin

import click
import msgspec

from certwright.cli.access import choose, load, session
from certwright.cli.errors import Failed
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, server_options
from certwright.kube.api.errors import ApiError


@click.command(short_help="Open the dashboard in a browser, logged in.")
@click.option("--print", "only_print", is_flag=True, help="Print the one-time link instead of opening it.")
@server_options
@asynchronous
async def command(*, server: ServerOptions, only_print: bool) -> None:
    """Open the dashboard in a browser, logged in as the user of the kubeconfig.

    The link works once, within 15 minutes. Where no browser can be opened, it is printed.

    \b
    Examples:
      certwright dashboard
      certwright dashboard --print --kubeconfig anna.kubeconfig
    """
    base = load(choose(server.kubeconfig, os.environ, Path.cwd()), server.context).server
    async with session(server) as here:
        try:
            response = await here.client.raw("POST", "/ui/link")
            path = str(msgspec.json.decode(response.body)["path"])
        except (ApiError, msgspec.MsgspecError, KeyError, TypeError) as error:
            raise Failed(f"{base} has no dashboard for you: {error}") from error
    link = urljoin(f"{base.rstrip('/')}/ui/", path)
    if not only_print and sys.stdout.isatty() and webbrowser.open(link):
        echo(f"opened {base.rstrip('/')}/ui/ in the browser")
        return
    echo(link)
