"""`certwright serve`."""

from __future__ import annotations

import logging
import sys
from contextlib import AsyncExitStack

import click

from certwright.cli import daemon, lazy, server_flags
from certwright.cli.access import SERVICE_DATA_DIR, USER_AGENT
from certwright.cli.configuration import Configured, only_reading
from certwright.cli.errors import Failed
from certwright.cli.export_flags import ExportFlags, export_options
from certwright.cli.flags import DEFAULT_LISTEN, flag_options

_log = logging.getLogger(__name__)
_Settings = tuple[server_flags.ServerFlags, "lazy.app.ServeOptions", daemon.LogFlags]


@click.command(cls=Configured, short_help="Run the server: API, store and controllers, until stopped.")
@server_flags.server_flags("127.0.0.1:8443")
@export_options(default=None)
@flag_options("log", daemon.LogFlags)
def command(
    *, server: server_flags.ServerFlags, export: ExportFlags, log: daemon.LogFlags
) -> _Settings | None:
    """Run the server until Ctrl-C or SIGTERM: the API, the store behind it and the controllers.

    Before it reports that it is ready, it writes DIR/kubeconfig, which kubectl and all commands of
    certwright use. Only its owner can read that file, because it contains the administrator's credentials.

    \b
    Examples:
      certwright serve
      certwright serve --data-dir /var/lib/certwright --listen :8443
      certwright serve --controllers ''         only the API
      certwright serve --http01-listen :80      for ACME's HTTP-01 challenges
      certwright serve --export /etc/tls --on-change 'systemctl reload nginx'
      certwright serve --store memory --listen 127.0.0.1:0    for a test
      certwright serve --store etcds://e1:2379,e2:2379 --etcd-cafile ca.crt
    """
    is_read_only = only_reading()
    if not is_read_only:
        log.set_up()
    export.check_apart(server.deliveries.delivery_roots)
    host, port = server.listen or DEFAULT_LISTEN
    options = server.at(host, port)
    if is_read_only:
        return server, options, log
    server.deliveries.reserve()
    try:
        lazy.app.run(_serve(click.get_current_context(), options, export, log))
    except lazy.app.ExportFailed as error:
        raise Failed(str(error)) from error
    daemon.leave()
    return None


async def _serve(
    context: click.Context, options: lazy.app.ServeOptions, export: ExportFlags, log: daemon.LogFlags
) -> None:
    stop = daemon.Stop()
    async with AsyncExitStack() as stack:
        exports = None
        if (settings := export.settings) is not None:
            exports = await stack.enter_async_context(lazy.app.Exports(settings).opened())
        try:
            server = await stop.unless_stopped(lazy.app.start_server(options))
        except lazy.app.StartError as error:
            hint = ""
            if SERVICE_DATA_DIR.exists() and options.data_dir != SERVICE_DATA_DIR:
                hint = (
                    "; on this machine certwright is a service already (`sudo certwright doctor` checks it)"
                )
            raise Failed(f"{error}{hint}") from error
        if server is None:
            return

        async def use(fresh: _Settings) -> str:
            flags, options, log = fresh
            flags.deliveries.reserve()
            await server.reload(options)
            log.set_up()
            return "reloaded the token files, the CAs of clients and the server's own certificate"

        stop.reload = lambda: daemon.reload(context, use)
        await stack.enter_async_context(stop.ending(server, _log))
        lazy.app.freeze_heap()
        if exports is not None:
            server.watch_over(exports.follow(server.client(USER_AGENT)), name="export")
        announce(server, log)
        stop.ready(f"serving at {server.address}")
        await stop.wait(server)


def announce(server: lazy.app.RunningServer, log: daemon.LogFlags) -> None:
    """Report that the server is ready, where it is, and how other machines reach it."""
    path = str(server.kubeconfig)
    log.announce(
        f"certwright is ready at {server.address}; kubeconfig {path}", address=server.address, kubeconfig=path
    )
    if sys.stdout.isatty() and (link := server.dashboard_link()):
        log.announce(f"the dashboard is at {server.address}/ui/; this link logs you in once: {link}")
    if server.others:
        log.announce(
            f"other machines reach it at {', '.join(server.others)}; a kubeconfig for one of them: "
            f"certwright user create NAME --role view --server {server.others[0]}"
        )
    options = server.options
    daemon.log_started(
        _log,
        address=server.address,
        store=options.store or "sqlite",
        dataDir=str(options.data_dir),
        controllers=options.controllers.controllers or "none",
    )
