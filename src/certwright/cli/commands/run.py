"""`certwright run`: the whole program in one command."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from certwright.cli import daemon, lazy, server_flags
from certwright.cli.errors import AlreadyReported, Failed, report_error
from certwright.cli.export_flags import DEFAULT_EXPORT, ExportFlags, export_options
from certwright.cli.options import gathered, read_manifests, timeout_option

if TYPE_CHECKING:
    from certwright.cli.sources import Manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """The options of `run` alone: members of `RunOptions`."""

    once: bool
    timeout_s: float


@click.command(short_help="Serve, apply FILEs, issue and renew their certificates, export them as files.")
@click.argument("manifests", nargs=-1, required=True, metavar="FILE…", callback=read_manifests)
@click.option("--once", is_flag=True, help="End as soon as all certificates of the FILEs are ready.")
@timeout_option(
    default="60s", text="How long to wait for the certificates before reporting what they wait for"
)
@export_options(default=DEFAULT_EXPORT)
@server_flags.server_flags("127.0.0.1:8443, or a free port if that is taken")
@daemon.log_options(level=None)
@gathered("flags", RunFlags)
def command(
    *,
    manifests: Manifests,
    flags: RunFlags,
    server: server_flags.ServerFlags,
    export: ExportFlags,
    log: daemon.LogFlags,
) -> None:
    """Start a server, apply FILEs, issue the certificates in them, and write each as files.

    FILE is a YAML or JSON file, a folder of such files, or `-` for standard input. Missing namespaces are
    created. When all certificates are ready, a table lists them; the command then serves and renews, and
    keeps the files up to date, until Ctrl-C. Issued certificates are kept in the data directory: the next run
    continues with them.

    With --once it exits with status 0 as soon as all certificates of the FILEs are ready; on a timeout, with
    status 1 and one sentence per certificate that is not.

    \b
    Examples:
      certwright run examples/quickstart.yaml
      certwright run examples/acme/acme.yaml --http01-listen :80
      certwright run manifests/ --once --timeout 30 --export /etc/tls
      certwright run web.yaml --export /etc/tls --on-change 'systemctl reload nginx'
    """
    if not manifests.readable:
        for document in manifests.documents:
            report_error(str(document))
        if manifests.documents:
            raise AlreadyReported
        raise Failed(f"{', '.join(manifests.names)} contains no objects")
    export.check_apart(server.deliveries.delivery_roots)
    log.set_up()
    server.deliveries.reserve()
    from certwright.cli.commands.runner import Runner, RunOptions  # 0.2 s, which --help does not need

    settings = export.settings
    assert settings is not None  # It has a default.
    options = RunOptions(
        manifests=manifests,
        server=server,
        export=settings,
        log=log,
        **asdict(flags),
    )
    succeeded = lazy.app.run(Runner(options).run())
    daemon.leave(0 if succeeded else 1)
    if not succeeded:
        raise AlreadyReported
