"""`certwright serve`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import (
    acme_flags,
    cluster_flags,
    daemon,
    delivery_flags,
    etcd_flags,
    fairness_flags,
    lazy,
    listen_flags,
    shim_flags,
)
from certwright.cli.access import USER_AGENT
from certwright.cli.errors import Failed
from certwright.cli.export_flags import ExportFlags, export_options
from certwright.cli.options import TRUTH, gathered
from certwright.kit.service_manager import ServiceManager

_log = logging.getLogger(__name__)

DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFlags:
    """The options of `serve` alone: the members of `app.ServeOptions`, and the address."""

    listen: listen_flags.Address | None
    tls_sans: tuple[str, ...]
    data_dir: Path
    store: str | None
    encryption_key_file: Path | None
    encrypt_secrets: bool
    leader_elect: bool
    leader_election_namespace: str
    token_auth_file: Path | None
    client_ca_file: Path | None
    anonymous_auth: bool
    service_account_issuer: str
    event_ttl: timedelta


@click.command(short_help="Run the server: API, store and controllers, until stopped.")
@daemon.DATA_DIR
@listen_flags.listen_option("127.0.0.1:8443")
@listen_flags.TLS_SAN
@click.option(
    "--store",
    metavar="PATH|memory|etcd://HOST:PORT[,…]",
    help="The store: a SQLite file (by default one in DIR); memory, which is lost at exit; or etcd, "
    "which several servers share (etcds:// with TLS; see --etcd-…).",
)
@etcd_flags.etcd_options
@daemon.ENCRYPTION_KEY_FILE
@daemon.ENCRYPT_SECRETS
@daemon.controller_options
@acme_flags.acme_options
@shim_flags.shim_options
@delivery_flags.delivery_options
@cluster_flags.LEADER_ELECT
@cluster_flags.LEADER_ELECTION_NAMESPACE
@click.option(
    "--token-auth-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bearer tokens of users, as CSV: token, user, uid, and in quotes groups with commas between.",
)
@click.option(
    "--client-ca-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The CAs whose client certificates are trusted (PEM): CN is the user, O the groups.  "
    "[default: DIR/pki/ca.crt]",
)
@click.option(
    "--anonymous-auth",
    metavar="true|false",
    type=TRUTH,
    default=False,
    help="Accept unauthenticated requests as system:anonymous.  [default: false]",
)
@click.option(
    "--service-account-issuer",
    metavar="URL",
    default=DEFAULT_ISSUER,
    show_default=True,
    help="Issuer of ServiceAccount tokens.",
)
@click.option(
    "--event-ttl",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=daemon.parse_duration_option,
    help="How long an Event is kept after it was last seen; 0s: forever.",
)
@export_options(default=None)
@fairness_flags.fairness_options
@daemon.FEATURE_GATES
@daemon.log_options()
@gathered("serve", ServeFlags)
def command(
    *,
    serve: ServeFlags,
    etcd: etcd_flags.EtcdFlags,
    flags: daemon.ControllerFlags,
    acme: acme_flags.AcmeFlags,
    shims: shim_flags.ShimFlags,
    deliveries: delivery_flags.DeliveryFlags,
    fairness: fairness_flags.FairnessFlags,
    export: ExportFlags,
    log: daemon.LogFlags,
) -> None:
    """Run the server until Ctrl-C or SIGTERM: the API, the store behind it and the controllers.

    Before it reports that it is ready, it writes DIR/kubeconfig, which kubectl and all commands of
    certwright use. Only its owner can read that file, because it contains the administrator's credentials.

    \b
    Examples:
      certwright serve
      certwright serve --data-dir /var/lib/certwright --listen :8443 --tls-san pki.example.com
      certwright serve --controllers ''            only the API; `certwright controllers` elsewhere
      certwright serve --http01-listen :80         for ACME issuers with HTTP-01 challenges
      certwright serve --export /etc/tls --on-change 'systemctl reload nginx'    certificates as files
      certwright serve --store memory --listen 127.0.0.1:0  for a test: nothing is kept, any free port
      certwright serve --store etcds://e1:2379,e2:2379 --etcd-cafile ca.crt    one of several servers
    """
    log.set_up()
    given = asdict(serve)
    host, port = given.pop("listen") or listen_flags.DEFAULT_LISTEN
    options = lazy.app.ServeOptions(
        host=host,
        port=port,
        etcd=etcd.options,
        controllers=lazy.app.ControllerOptions(
            acme=acme.settings, shims=shims.settings, deliveries=deliveries.settings, **asdict(flags)
        ),
        in_flight=lazy.app.InFlight(**asdict(fairness)),
        feature_gates=flags.feature_gates,
        **given,
    )
    lazy.app.run(_serve(options, export, log))
    daemon.leave()


async def _serve(options: lazy.app.ServeOptions, export: ExportFlags, log: daemon.LogFlags) -> None:
    async with AsyncExitStack() as stack:
        exports = None
        if (settings := export.settings) is not None:
            exports = await stack.enter_async_context(lazy.exporting.Exports(settings).opened())
        await _serve_until_stopped(options, exports, log)


async def _serve_until_stopped(
    options: lazy.app.ServeOptions, exports: lazy.exporting.Exports | None, log: daemon.LogFlags
) -> None:
    stop, service = daemon.Stop(), ServiceManager()
    try:
        server = await stop.unless_stopped(lazy.app.start_server(options))
    except lazy.app.StartError as error:
        raise Failed(str(error)) from error
    if server is None:
        return
    lazy.app.keep_what_is_there()
    if exports is not None:
        server.watch_over(exports.follow(server.client(USER_AGENT)), name="export")
    announce(server, log)
    alive = asyncio.ensure_future(service.keep_alive())

    def reload() -> str:
        service.reloading()
        done = server.reload()
        service.ready(f"serving at {server.address}")
        return done

    stop.reload = reload
    try:
        service.ready(f"serving at {server.address}")
        await stop.wait_or(server.wait_failed())
    finally:
        alive.cancel()
        daemon.log_stopping(_log, stop)
        service.stopping()
        await daemon.close(server.close)


def announce(server: lazy.app.RunningServer, log: daemon.LogFlags) -> None:
    """Report that the server is ready, where it is, and how other machines reach it."""
    path = str(server.kubeconfig)
    log.announce(
        f"certwright is ready at {server.address}; kubeconfig {path}", address=server.address, kubeconfig=path
    )
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
