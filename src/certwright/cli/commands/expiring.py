"""`certwright expiring`."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certwright.cli import lazy
from certwright.cli.access import choose, session
from certwright.cli.errors import AlreadyReported, Failed, report_error, report_warning
from certwright.cli.flags import flag, flag_options, repeated, seconds
from certwright.cli.format import echo
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options, no_headers_option
from certwright.diagnosis.words import sentence
from certwright.kube.api.errors import Forbidden
from certwright.kube.util.durations import parse_duration

if TYPE_CHECKING:
    from certwright.diagnosis.inventory import Record
    from certwright.kit.tls_scan import TlsAddress

_DAYS = re.compile(r"([0-9]{1,6})(d|w)", re.ASCII)
_DAYS_OF = {"d": 1, "w": 7}


def parse_within(_context: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    """Read `30d`, `2w` or a duration as in a spec, `36h`."""
    if value is None:
        return None
    if match := _DAYS.fullmatch(value):
        return timedelta(days=int(match[1]) * _DAYS_OF[match[2]])
    try:
        duration = parse_duration(value)
    except ValueError:
        raise click.BadParameter(f'{value!r} is not a duration; write e.g. "30d", "2w" or "36h"') from None
    if duration < timedelta(0):
        raise click.BadParameter(f"{value!r} cannot be negative")
    return duration


def parse_addresses(values: tuple[str, ...]) -> tuple[TlsAddress, ...]:
    """Read the addresses of `--scan`."""
    try:
        return tuple(lazy.tls_scan.TlsAddress.parse(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What is read besides the server: hosts, with the time for each, and files."""

    scan: tuple[TlsAddress, ...] = repeated(
        "--scan",
        "Also the certificate that this TLS server presents; NAME for SNI; smtp://, imap:// and postgres:// "
        "use STARTTLS. May be repeated.",
        metavar="[NAME@]HOST[:PORT]",
        parse=parse_addresses,
    )
    files: tuple[str, ...] = flag(
        "--files",
        "Also the certificates in these files (PEM or DER); may be repeated.",
        metavar="GLOB|DIR",
        multiple=True,
    )
    only_scanned: bool = flag(
        "--only-scanned",
        "List only the hosts of --scan and the files of --files; hosts are still compared with the server.",
        is_flag=True,
    )
    timeout_s: float = seconds(
        "--timeout", "Give up a --scan after this time; e.g. 30, 30s or 5m.", default="10s"
    )


@click.command(short_help="List certificates by expiry: of the server, in files, on hosts.")
@click.option(
    "--within",
    metavar="TIME",
    callback=parse_within,
    help="Only those that expire in this time, or have expired; e.g. 30d, 2w or 36h.",
)
@flag_options("elsewhere", Elsewhere)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("json", "yaml", "csv", "prometheus")),
    help="As JSON, YAML, CSV or Prometheus metrics; without it a table.",
)
@no_headers_option
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="All namespaces, also with -n; it is an error if you may not list them.",
)
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    within: timedelta | None,
    elsewhere: Elsewhere,
    output: str | None,
    no_headers: bool,
    all_namespaces: bool,
) -> None:
    """List certificates by expiry, soonest first.

    Certificates of the server, other Secrets with a certificate, and on request the files of this machine and
    the certificates that hosts present; those are not verified. RENEWS AT is the next renewal of a
    Certificate. SERVED AT lists the hosts and files of this list that have the same certificate.

    All namespaces are listed, with -n one, or the kubeconfig's where you may not list all.

    With --scan or --files a server need not be configured.

    Exit status 0, also if something has expired. 1 if a host or a file could not be read, or if a host
    serves another certificate than the server has for its name, e.g. an older one.

    \b
    Examples:
      certwright expiring --within 30d
      certwright expiring --scan www.example.com --scan smtp://mail.example.com
      certwright expiring --only-scanned --scan www.example.com@127.0.0.1
      certwright expiring --scan www.example.com@10.0.0.7:8443 --files /etc/nginx/ -o json
      certwright expiring -o prometheus > /var/lib/node_exporter/certificates.prom
    """
    files, unreadable = await asyncio.to_thread(lazy.inventory.read_files, elsewhere.files)
    hosts, known = await asyncio.gather(
        lazy.inventory.scan_hosts(elsewhere.scan, timeout_s=elsewhere.timeout_s),
        _of_the_server(server, elsewhere, all_namespaces=all_namespaces),
    )
    now = datetime.now(UTC)
    hosts = lazy.inventory.compared(hosts, elsewhere.scan, known)
    listed = [] if elsewhere.only_scanned else known
    records = lazy.inventory.linked([*listed, *files, *hosts])
    chosen = lazy.inventory.soonest_first(records, now, within)
    if output is not None:
        echo(lazy.inventory_output.render(chosen, now, output))
    elif chosen:
        lazy.inventory_output.show(chosen, now, headers=not no_headers)
    else:
        echo("no certificate was found" if within is None else "no certificate expires in that time")
    for record in known:
        if record.problem:
            report_warning(record.problem)
    problems = [*unreadable, *(record.problem for record in hosts if record.problem)]
    for problem in problems:
        report_error(problem)
    if problems:
        raise AlreadyReported


async def _of_the_server(
    server: ServerOptions, elsewhere: Elsewhere, *, all_namespaces: bool
) -> list[Record]:
    if elsewhere.scan or elsewhere.files:
        try:
            choose(server.kubeconfig, os.environ, Path.cwd())
        except Failed:
            report_warning("no server is configured (see --kubeconfig): only files and hosts are listed")
            return []
    records: list[Record]
    async with session(server) as here:
        namespace = "" if all_namespaces else server.namespace or ""
        try:
            records = await lazy.inventory.read_cluster(here.client, namespace, warn=report_warning)
        except Forbidden as error:
            if namespace or all_namespaces:
                raise
            report_warning(f"only namespace {here.namespace} is listed: {sentence(str(error))}")
            records = await lazy.inventory.read_cluster(here.client, here.namespace, warn=report_warning)
    return records
