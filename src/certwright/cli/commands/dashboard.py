"""`certwright dashboard`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import click
import msgspec
from msgspec.structs import replace

from certwright.cli.access import session
from certwright.cli.errors import Failed
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, server_options
from certwright.kube.api.errors import ApiError, NoApi, NotFound, Unauthorized, Untrusted
from certwright.kube.client.kubeconfig import ClusterAccess


@click.command(short_help="Open the dashboard in a browser, logged in.")
@click.option("--print", "only_print", is_flag=True, help="Print the one-time link instead of opening it.")
@click.option(
    "--url",
    metavar="URL",
    help="The dashboard of controllers in a cluster, or behind a proxy, as https://HOST[:PORT][/PATH].",
)
@click.option(
    "--certificate-authority",
    "ca_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The CA of --url (PEM); without it, those that the system trusts.",
)
@server_options
@asynchronous
async def command(*, server: ServerOptions, only_print: bool, url: str | None, ca_file: Path | None) -> None:
    """Open the dashboard in a browser, logged in as the user of the kubeconfig.

    The link works once, within 15 minutes. Where no browser can be opened, e.g. over SSH, it is printed.

    The dashboard of controllers in a cluster has an address of its own: --url names it, and the token of the
    kubeconfig is sent there.

    \b
    Examples:
      certwright dashboard
      certwright dashboard --print --kubeconfig anna.kubeconfig
      certwright dashboard --url https://certs.example.com
    """
    if url is not None and urlsplit(url).scheme != "https":
        raise click.UsageError(f"--url {url} is no address of a dashboard; write https://HOST[:PORT][/PATH]")
    if ca_file is not None and url is None:
        raise click.UsageError("--certificate-authority is about --url")
    place = ""

    def instead(access: ClusterAccess) -> ClusterAccess:
        nonlocal place
        place = access.server.rstrip("/")
        if url is None:
            return access
        place = url.rstrip("/").removesuffix("/ui")
        ca_pem = ca_file.read_bytes() if ca_file is not None else b""
        # A client certificate is for the API server, which alone can check it.
        return replace(access, server=place, ca_pem=ca_pem, insecure=False, server_name="")

    async with session(server, instead=instead) as here:
        try:
            response = await here.client.raw("POST", "/ui/link")
            path = str(msgspec.json.decode(response.body)["path"])
        except Untrusted as error:
            if url is None:
                raise
            raise Failed(
                f"{place} has a certificate that is not trusted: {error}; name its CA with "
                f"--certificate-authority, or open {place}/ui/ and paste a token"
            ) from error
        except Unauthorized as error:
            if url is None:
                raise
            raise Failed(
                f"{place} does not accept the kubeconfig's token: {error}; if it has none, open {place}/ui/ "
                "and paste one of `kubectl create token NAME`"
            ) from error
        except (ApiError, NoApi, msgspec.MsgspecError, KeyError, TypeError) as error:
            raise Failed(_no_dashboard(place, error, is_cluster=url is None)) from error
    link = urljoin(f"{place}/ui/", path)
    if not only_print and sys.stdout.isatty() and _has_browser(os.environ) and webbrowser.open(link):
        echo(f"opened {place}/ui/ in the browser")
        return
    echo(link)


def _has_browser(environment: Mapping[str, str]) -> bool:
    """Whether a browser of this machine would be before the user's eyes."""
    if {"SSH_CONNECTION", "SSH_TTY"} & environment.keys():
        return False
    has_screen = bool({"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & environment.keys())
    return sys.platform == "darwin" or has_screen


def _no_dashboard(place: str, error: Exception, *, is_cluster: bool) -> str:
    if isinstance(error, ApiError) and not isinstance(error, NotFound) and error.http_status != 403:
        return f"{place} makes no link to its dashboard: {error}"
    if not is_cluster:
        return f"{place} is no dashboard: {error}; --url is the address before /ui/"
    return (
        f"{place} has no dashboard at /ui/: it is off (--dashboard of `certwright serve`), or this is a "
        "Kubernetes cluster, where the controllers show it (--dashboard-listen): `kubectl -n certwright "
        "port-forward service/certwright-dashboard 8444:443`, then `certwright dashboard --url https://localhost:8444`"
    )
