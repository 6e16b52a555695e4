"""`certwright check api` and `certwright check switch`."""

from __future__ import annotations

import asyncio

import click

from certwright.cli.access import session
from certwright.cli.api_check import NotServed, check_api
from certwright.cli.errors import AlreadyReported, Failed
from certwright.cli.options import (
    ServerOptions,
    asynchronous,
    namespaced_server_options,
    server_options,
    timeout_option,
)
from certwright.cli.output import echo
from certwright.cli.switch_findings import Finding, findings
from certwright.cli.switch_reading import SwitchReader

_EVERY_S = 1.0
_MARKS = {"works": "works", "changes": "change", "unread": "UNREAD", "stops": "STOPS"}


@click.command("api", short_help="Check that the server serves and checks the kinds.")
@timeout_option(default="0s", text="Try again for this long")
@namespaced_server_options
@asynchronous
async def api(*, server: ServerOptions, timeout_s: float) -> None:
    """Check that the API server serves cert-manager's kinds and rejects invalid objects, by two dry runs.

    Exit status 0: it does. 1: it does not, with the reason.

    \b
    Examples:
      certwright check api
      certwright check api --timeout 2m --kubeconfig cluster.yaml
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    async with session(server) as here:
        while True:
            try:
                await check_api(here.client, here.namespace)
                break
            except NotServed as error:
                if loop.time() >= until:
                    raise Failed(str(error)) from error
            await asyncio.sleep(_EVERY_S)
    echo("the API is ready")


@click.command("switch", short_help="What works, changes or stops if certwright takes over a cluster.")
@server_options
@asynchronous
async def switch(*, server: ServerOptions) -> None:
    """Read a cluster that runs cert-manager, and list what will work, change or stop with certwright.

    Nothing is written. Secrets are not read. docs/takeover.md describes how to switch, and back.

    Exit status 0: nothing stops. 1: something does, or could not be read.

    \b
    Example:
      certwright check switch --kubeconfig cluster.yaml
    """
    async with session(server) as here:
        results = findings(await SwitchReader(here.client).read())
    for finding in results:
        echo(_line(finding))
    if any(finding.verdict in ("stops", "unread") for finding in results):
        raise AlreadyReported


def _line(finding: Finding) -> str:
    return f"{_MARKS[finding.verdict]:<8}{finding.about}: {finding.text}"
