"""The options that make a server: those of `serve`, which `run` has too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import acme_flags, controller_flags, daemon, delivery_flags, etcd_flags, lazy
from certwright.cli.flags import (
    Address,
    duration,
    file,
    flag,
    listen_flag,
    number,
    parse_names,
    repeated,
    switch,
)
from certwright.cli.options import Decorator, gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessFlags:
    """The members of `app.InFlight`. Raises `click.UsageError`."""

    max_requests: int
    max_mutating_requests: int
    priority_and_fairness: bool

    def __post_init__(self) -> None:
        if self.priority_and_fairness and not (self.max_requests and self.max_mutating_requests):
            raise click.UsageError(
                "--max-requests-inflight and --max-mutating-requests-inflight must be above 0, unless "
                "--enable-priority-and-fairness=false is given"
            )


_FAIRNESS = (
    number(
        "--max-requests-inflight",
        "max_requests",
        at_least=0,
        default=400,
        text="Maximum number of concurrent read requests; more of them wait.",
    ),
    number(
        "--max-mutating-requests-inflight",
        "max_mutating_requests",
        at_least=0,
        default=200,
        text="Maximum number of concurrent write requests; more of them wait.",
    ),
    switch(
        "--enable-priority-and-fairness",
        "priority_and_fairness",
        default=True,
        text="Priority and fairness: queue requests fairly per user; false: only the two limits above "
        "apply, 0 means none.",
    ),
)

fairness_options = gathered("fairness", FairnessFlags, _FAIRNESS)
"""Adds the flags; the function gets them as `fairness: FairnessFlags`."""


DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFlags:
    """The options of the server; without `--listen` the command chooses the address."""

    listen: Address | None
    tls_sans: tuple[str, ...]
    data_dir: Path
    store: str | None
    etcd: etcd_flags.EtcdFlags
    encryption_key_file: Path | None
    encrypt_secrets: bool
    flags: controller_flags.ControllerFlags
    acme: acme_flags.AcmeFlags
    shims: controller_flags.ShimFlags
    deliveries: delivery_flags.DeliveryFlags
    leader_elect: bool
    leader_election_namespace: str
    token_auth_file: Path | None
    client_ca_file: Path | None
    anonymous_auth: bool
    service_account_issuer: str
    event_ttl: timedelta
    fairness: FairnessFlags

    def at(self, host: str, port: int) -> lazy.app.ServeOptions:
        """The options of the process, which listens there."""
        return lazy.app.ServeOptions(
            host=host,
            port=port,
            tls_sans=self.tls_sans,
            data_dir=self.data_dir,
            store=self.store,
            etcd=self.etcd.options,
            encryption_key_file=self.encryption_key_file,
            encrypt_secrets=self.encrypt_secrets,
            controllers=lazy.app.ControllerOptions(
                acme=self.acme.settings,
                shims=self.shims.settings,
                deliveries=self.deliveries.settings,
                **asdict(self.flags),
            ),
            leader_elect=self.leader_elect,
            leader_election_namespace=self.leader_election_namespace,
            token_auth_file=self.token_auth_file,
            client_ca_file=self.client_ca_file,
            anonymous_auth=self.anonymous_auth,
            service_account_issuer=self.service_account_issuer,
            event_ttl=self.event_ttl,
            in_flight=lazy.app.InFlight(**asdict(self.fairness)),
            feature_gates=self.flags.feature_gates,
        )


_ENCRYPT_SECRETS = switch(
    "--encrypt-secrets",
    default=True,
    text="Whether Secrets are encrypted in the store; false decrypts a SQLite file, but not an etcd.",
)
_TLS_SAN = repeated(
    "--tls-san",
    "tls_sans",
    metavar="NAME|IP",
    parse=parse_names,
    text="A further name or address of the server's certificate, by which other machines reach it; may be "
    "repeated.",
)
_USERS = (
    file(
        "--token-auth-file",
        text="Bearer tokens of users, as CSV: token, user, uid, and in quotes groups with commas between.",
    ),
    file(
        "--client-ca-file",
        text="The CAs whose client certificates are trusted (PEM): CN is the user, O the groups.  "
        "[default: DIR/pki/ca.crt]",
    ),
    switch("--anonymous-auth", default=False, text="Accept unauthenticated requests as system:anonymous."),
    flag(
        "--service-account-issuer",
        metavar="URL",
        default=DEFAULT_ISSUER,
        text="Issuer of ServiceAccount tokens.",
    ),
    duration(
        "--event-ttl",
        default="1h",
        text="How long an Event is kept after it was last seen; 0s: forever.",
    ),
)
_STORE = flag(
    "--store",
    metavar="PATH|memory|etcd://HOST:PORT[,…]",
    text="The store: a SQLite file (by default one in DIR); memory, which is lost at exit; or etcd, "
    "which several servers share (etcds:// with TLS; see --etcd-…).",
)


def server_flags(listen: str) -> Decorator:
    """Add the options of the server as `server: ServerFlags`; `listen` describes its default."""
    options = (
        daemon.DATA_DIR,
        listen_flag(listen),
        _TLS_SAN,
        _STORE,
        etcd_flags.etcd_options,
        daemon.ENCRYPTION_KEY_FILE,
        _ENCRYPT_SECRETS,
        controller_flags.controller_options,
        acme_flags.acme_options,
        controller_flags.shim_options,
        delivery_flags.delivery_options,
        controller_flags.LEADER_ELECT,
        controller_flags.LEADER_ELECTION_NAMESPACE,
        *_USERS,
        fairness_options,
        controller_flags.FEATURE_GATES,
    )
    return gathered("server", ServerFlags, options)
