"""The options of a server, for `serve` and `run`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import click

from certwright.cli import acme_flags, controller_flags, daemon, dashboard_flags, delivery_flags, lazy
from certwright.cli.controller_flags import LEADER_ELECT, LEADER_ELECTION_NAMESPACE
from certwright.cli.flags import (
    ANY_ADDRESS,
    Address,
    Decorator,
    Words,
    duration,
    file,
    flag,
    flag_options,
    group,
    number,
    parse_address,
    parse_names,
    removed,
    repeated,
    switch,
    values_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessFlags:
    """The members of `app.InFlight`. Raises `click.UsageError`."""

    SECTION: ClassVar = "Limits"

    max_requests: int = number(
        "--max-requests-inflight",
        "Maximum number of concurrent read requests; more of them wait.",
        at_least=0,
        default=400,
        reloads=True,
    )
    max_mutating_requests: int = number(
        "--max-mutating-requests-inflight",
        "Maximum number of concurrent write requests; more of them wait.",
        at_least=0,
        default=200,
        reloads=True,
    )
    priority_and_fairness: bool = switch(
        "--enable-priority-and-fairness",
        "Priority and fairness: queue requests fairly per user; false: only the two limits above "
        "apply, 0 means none.",
        default=True,
    )

    def __post_init__(self) -> None:
        if self.priority_and_fairness and not (self.max_requests and self.max_mutating_requests):
            raise click.UsageError(
                "--max-requests-inflight and --max-mutating-requests-inflight must be above 0, unless "
                "--enable-priority-and-fairness=false is given"
            )


def listen_flag(default: str) -> Any:
    """`--listen`; `default` is the text of the help."""

    def read(value: str | None) -> Address | None:
        address = parse_address(value)
        return None if address is None else (address[0] or ANY_ADDRESS, address[1])

    return flag(
        "--listen",
        "Where to listen, with TLS; :PORT is every address of this machine, and port 0 picks a free one.  "
        f"[default: {default}]",
        metavar="HOST:PORT",
        parse=read,
        section="Listen",
        often=True,
    )


def _parse_prefix(value: str) -> str:
    if not value.strip("/"):
        raise click.BadParameter("it must name a part of etcd's keys, e.g. /certwright")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFlags:
    """The connection settings of etcd."""

    SECTION: ClassVar = "Store"

    etcd_prefix: str = flag(
        "--etcd-prefix",
        "Prefix of all keys in etcd; servers that share a store use the same one.",
        metavar="PREFIX",
        default="/certwright",
        parse=_parse_prefix,
    )
    etcd_owner: str = flag(
        "--etcd-owner",
        "Name of the installation that --etcd-prefix belongs to; servers with another one do not start.",
        metavar="NAME",
        default="",
    )
    etcd_ca_file: Path | None = file(
        "--etcd-cafile", "The CAs that etcd's certificate is verified with.  [default: the system's]"
    )
    etcd_cert_file: Path | None = file("--etcd-certfile", "The client certificate for etcd.")
    etcd_key_file: Path | None = file("--etcd-keyfile", "The private key of --etcd-certfile.")
    etcd_user: str | None = flag("--etcd-user", "The user of etcd's own authentication.", metavar="NAME")
    etcd_password_file: Path | None = file("--etcd-password-file", "The password of --etcd-user.")
    etcd_compaction_interval: timedelta = duration(
        "--etcd-compaction-interval",
        "Interval of etcd's compaction; 0s: disabled (compaction is handled elsewhere).",
        default="5m",
    )
    etcd_quota_backend_bytes: int = number(
        "--etcd-quota-backend-bytes",
        "etcd's --quota-backend-bytes, for warnings; etcd 3.6 reports it itself.",
        metavar="BYTES",
        default=2 << 30,
    )
    etcd_upgrade_format: bool = flag(
        "--etcd-upgrade-format",
        "Write compressed rows into a store of an earlier version, too. Only when all servers run this "
        "version: earlier ones stop, and refuse the store.",
        is_flag=True,
    )
    etcd_servers_overrides: None = removed(
        "--etcd-servers-overrides", ": everything is on the etcd of --store; remove the flag"
    )

    @property
    def options(self) -> lazy.app.EtcdOptions:
        """The options of the process."""
        given = {name.removeprefix("etcd_"): value for name, value in values_of(self).items()}
        return lazy.app.EtcdOptions(**given)


DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The options of the server; without `--listen` the command chooses the address."""

    data_dir: Path = daemon.DATA_DIR
    listen: Address | None = listen_flag("127.0.0.1:8443")
    tls_sans: tuple[str, ...] = repeated(
        "--tls-san",
        "A further name or address of the server's certificate, by which other machines reach it; may be "
        "repeated.",
        metavar="NAME|IP",
        parse=parse_names,
        reloads=True,
        section="Listen",
        often=True,
    )
    store: str | None = flag(
        "--store",
        "The store: a SQLite file (by default one in DIR); memory, which is lost at exit; or etcd, "
        "which several servers share (etcds:// with TLS; see --etcd-…).",
        metavar="PATH|memory|etcd://HOST:PORT[,…]",
        section="Store",
        often=True,
    )
    etcd: EtcdFlags = group(EtcdFlags)
    encryption_key_file: Path | None = daemon.ENCRYPTION_KEY_FILE
    encrypt_secrets: bool = switch(
        "--encrypt-secrets",
        "Whether Secrets are encrypted in the store; false decrypts a SQLite file, but not an etcd.",
        default=True,
        section="Store",
    )
    flags: controller_flags.ControllerFlags = group(controller_flags.ControllerFlags)
    acme: acme_flags.AcmeFlags = group(acme_flags.AcmeFlags)
    shims: controller_flags.ShimFlags = group(controller_flags.ShimFlags)
    deliveries: delivery_flags.DeliveryFlags = group(delivery_flags.DeliveryFlags)
    leader_elect: bool = LEADER_ELECT
    leader_election_namespace: str = LEADER_ELECTION_NAMESPACE
    token_auth_file: Path | None = file(
        "--token-auth-file",
        "Bearer tokens of users, as CSV: token, user, uid, and in quotes groups with commas between.",
        reloads=True,
        section="Users",
        often=True,
    )
    client_ca_file: Path | None = file(
        "--client-ca-file",
        "The CAs whose client certificates are trusted (PEM): CN is the user, O the groups.  "
        "[default: DIR/pki/ca.crt]",
        reloads=True,
        section="Users",
        often=True,
    )
    anonymous_auth: bool = switch(
        "--anonymous-auth",
        "Accept unauthenticated requests as system:anonymous.",
        default=False,
        section="Users",
    )
    service_account_issuer: str = flag(
        "--service-account-issuer",
        "Issuer of ServiceAccount tokens.",
        metavar="URL",
        default=DEFAULT_ISSUER,
        section="Users",
    )
    dashboard: str = flag(
        "--dashboard",
        "The pages at /ui/: on, read-only (they change nothing), or off.",
        type=click.Choice(["on", "read-only", "off"]),
        default="on",
        reloads=True,
        section="Users",
        often=True,
    )
    dashboard_scan: Words = dashboard_flags.scanned_hosts(section="Users")
    dashboard_files: Words = dashboard_flags.searched_files(section="Users")
    event_ttl: timedelta = duration(
        "--event-ttl",
        "How long an Event is kept after it was last seen; 0s: forever.",
        default="1h",
        section="Limits",
    )
    fairness: FairnessFlags = group(FairnessFlags)

    def at(self, host: str, port: int) -> lazy.app.ServeOptions:
        """The options of the process, which listens there."""
        values = values_of(self)
        del values["listen"]
        return lazy.app.ServeOptions(
            host=host,
            port=port,
            etcd=self.etcd.options,
            controllers=self.flags.settings(
                acme=self.acme.settings, shims=self.shims.settings, deliveries=self.deliveries.settings
            ),
            in_flight=lazy.app.InFlight(**values_of(self.fairness)),
            feature_gates=self.flags.feature_gates,
            **values,
        )


def server_flags(listen: str) -> Decorator:
    """Add the options of the server as `server: ServerFlags`; `listen` describes its default."""
    return flag_options("server", ServerFlags, listen=listen_flag(listen))
