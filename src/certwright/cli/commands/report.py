"""`certwright report`."""

from __future__ import annotations

import click

from certwright.cli import lazy
from certwright.cli.access import session
from certwright.cli.errors import report_warning
from certwright.cli.format import echo, echo_lines, print_content
from certwright.cli.options import (
    ServerOptions,
    all_namespaces_option,
    asynchronous,
    namespaced_server_options,
)
from certwright.diagnosis import related
from certwright.diagnosis.words import sentence
from certwright.kube.api.errors import Forbidden
from certwright.kube.util.clock import SystemClock


@click.command(short_help="Report whether every certificate is all right: as text, a page or JSON.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "html", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Text, the dashboard's first page as one file, or what /ui/status.json has.",
)
@all_namespaces_option
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, output: str, all_namespaces: bool) -> None:
    """Report whether every certificate is all right, if not why, and what happens next.

    All namespaces are read, with -n one, or the kubeconfig's where you may not list all. The file of -o html
    needs no other file and no server: send it by mail, or keep it for an audit.

    \b
    Examples:
      certwright report
      certwright report -o html > certificates.html
      certwright report -n shop -o json
    """
    async with session(server) as here:
        namespace = "" if all_namespaces else server.namespace or ""
        try:
            await here.client.list_page(related.CERTIFICATES, namespace, limit=1)
        except Forbidden as error:
            if namespace or all_namespaces:
                raise
            namespace = here.namespace
            report_warning(f"only namespace {namespace} is reported: {sentence(str(error))}")
        report = await lazy.report.make_report(here.client, SystemClock(), namespace=namespace)
    if output == "html":
        echo(report.html())
    elif output == "text":
        echo_lines(report.lines())
    else:
        print_content(report.json(), output)
