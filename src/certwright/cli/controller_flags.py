"""The flags of controllers, with cert-manager's names: what they do, certificates of Ingresses and Gateways,
and their work beside an API server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import lazy
from certwright.cli.flags import duration, file, flag, number, repeated, switch, words
from certwright.cli.options import gathered
from certwright.kube.api import naming
from certwright.kube.util.durations import format_duration
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES

FEATURE_GATES = flag(
    "--feature-gates",
    metavar="GATE=BOOL,…",
    default="",
    text="Enable or disable features, e.g. SecretsFilteredCaching=false.  [default: all on, but PostQuantum]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """The settings of the controllers. Raises `click.UsageError`."""

    controllers: str
    cluster_resource_namespace: str
    backoff_minimum: timedelta
    backoff_maximum: timedelta
    issuer_attempts_per_hour: int
    certificate_owner_references: bool
    copied_annotation_prefixes: tuple[str, ...]
    notifications: Path | None
    feature_gates: str

    def __post_init__(self) -> None:
        if self.backoff_minimum > self.backoff_maximum:
            raise click.UsageError(
                f"the minimum backoff ({format_duration(self.backoff_minimum)}) is longer than "
                f"the maximum ({format_duration(self.backoff_maximum)})"
            )


def _parse_namespace(value: str) -> str:
    if naming.check_name(value, rule="label") is not None:
        raise click.BadParameter(
            f"{value!r} is not a namespace: a name has at most {naming.MAX_LABEL} lower-case letters, digits"
            " and `-`, and begins and ends with a letter or digit"
        )
    return value


_CONTROLLERS = (
    flag(
        "--controllers",
        metavar="LIST",
        default="*",
        text="Which controllers run: `*` for all, names, `-name` to leave one out; empty for none.",
    ),
    flag(
        "--cluster-resource-namespace",
        metavar="NS",
        default="kube-system",
        parse=_parse_namespace,
        text="Namespace of the Secrets of ClusterIssuers.",
    ),
    duration(
        "--certificate-request-minimum-backoff-duration",
        "backoff_minimum",
        default="1h",
        text="How long to wait after the first failed request; doubled after each further one.",
    ),
    duration(
        "--certificate-request-maximum-backoff-duration",
        "backoff_maximum",
        default="32h",
        text="The longest wait between failed requests.",
    ),
    number(
        "--issuer-attempts-per-hour",
        at_least=0,
        default=12,
        text="How many attempts of all certificates a failing issuer gets in an hour; 0: no limit.",
    ),
    switch(
        "--enable-certificate-owner-ref",
        "certificate_owner_references",
        default=False,
        text="Whether a Certificate's Secret belongs to it, and is deleted with it.",
    ),
    repeated(
        "--copied-annotation-prefixes",
        metavar="LIST",
        default=(",".join(COPIED_ANNOTATION_PREFIXES),),
        show_default=True,
        parse=lambda lists: tuple(prefix for text in lists for prefix in text.split(",") if prefix),
        text="Annotations of a Certificate that its requests get: their beginnings, * for all, - before what "
        "they do not get.",
    ),
    file(
        "--notifications",
        text="Report failing and expiring certificates and failing issuers to the destinations of this file: "
        "mail, webhooks, apprise.",
    ),
)

controller_options = gathered("flags", ControllerFlags, _CONTROLLERS)
"""Adds the flags; the function gets them as `flags: ControllerFlags`. Needs `FEATURE_GATES` too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimFlags:
    """The members of `ShimOptions`: certificates of Ingresses, Gateways and ListenerSets."""

    issuer_name: str
    issuer_kind: str
    issuer_group: str
    auto_annotations: tuple[str, ...]
    extra_annotations: tuple[str, ...]
    extra_protocols: tuple[str, ...]
    gateways: bool
    listener_sets: bool

    @property
    def settings(self) -> lazy.app.ShimOptions:
        """The settings of the process."""
        return lazy.app.ShimOptions(**asdict(self))


_SHIMS = (
    flag(
        "--default-issuer-name",
        "issuer_name",
        metavar="NAME",
        default="",
        text="Issuer of Ingresses with an annotation of --auto-certificate-annotations that name none.",
    ),
    flag(
        "--default-issuer-kind",
        "issuer_kind",
        metavar="KIND",
        default="Issuer",
        text="Kind of the default issuer.",
    ),
    flag(
        "--default-issuer-group",
        "issuer_group",
        metavar="GROUP",
        default="cert-manager.io",
        text="API group of the default issuer.",
    ),
    words(
        "--auto-certificate-annotations",
        "auto_annotations",
        default=("kubernetes.io/tls-acme",),
        text="Annotations with which an Ingress gets certificates of the default issuer.  "
        "[default: kubernetes.io/tls-acme]",
    ),
    words(
        "--extra-certificate-annotations",
        "extra_annotations",
        text="Annotations that are copied from an Ingress, Gateway or ListenerSet to its Certificates.",
    ),
    switch(
        "--enable-gateway-api",
        "gateways",
        default=True,
        text="Certificates for Gateways; no error where there are no Gateways.",
    ),
    switch(
        "--enable-gateway-api-listenerset",
        "listener_sets",
        default=True,
        text="Certificates for ListenerSets.",
    ),
    words(
        "--gateway-api-extra-protocols",
        "extra_protocols",
        text="Protocols of listeners that use TLS, besides HTTPS and TLS.",
    ),
)

shim_options = gathered("shims", ShimFlags, _SHIMS)
"""Adds the flags; the function gets them as `shims: ShimFlags`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """The members of `app.ClusterSettings`: client throttling, leader election and sharding beside an API
    server. `identity` None: a new one at each start. Raises `click.UsageError`."""

    kube_api_qps: float
    kube_api_burst: int
    shards: int
    identity: str | None
    leader_elect: bool
    leader_election_namespace: str
    lease_duration: timedelta
    renew_deadline: timedelta
    retry_period: timedelta

    def __post_init__(self) -> None:
        if self.kube_api_qps >= 0 and not 0 < self.kube_api_qps <= self.kube_api_burst:
            raise click.UsageError(
                "--kube-api-qps must be above 0 and --kube-api-burst not below it; a negative "
                "--kube-api-qps means no limit"
            )


LEADER_ELECT = switch(
    "--leader-elect",
    default=True,
    text="Leader election: one of several replicas works, and the others wait for its lease.",
)
LEADER_ELECTION_NAMESPACE = flag(
    "--leader-election-namespace",
    metavar="NS",
    default="kube-system",
    text="Namespace of the Lease of the leader election.",
)

_CLUSTER = (
    flag(
        "--kube-api-qps",
        metavar="NUMBER",
        type=float,
        default=20.0,
        text="Average requests per second to the API server; ignored where the server applies priority "
        "and fairness.",
    ),
    flag(
        "--kube-api-burst",
        metavar="NUMBER",
        type=int,
        default=50,
        text="Size of the burst of requests above --kube-api-qps.",
    ),
    number(
        "--shards",
        metavar="NUMBER",
        default=1,
        text="Number of shards of the Certificates, i.e. of replicas that work at the same time; the "
        "same number for all of them.",
    ),
    flag(
        "--identity",
        metavar="NAME",
        text="The name of this replica on its Leases, which no other may have; a restart with the same "
        "name takes them over immediately.  [default: a new one at each start]",
    ),
    LEADER_ELECT,
    LEADER_ELECTION_NAMESPACE,
    duration(
        "--leader-election-lease-duration",
        "lease_duration",
        default="60s",
        text="How long the others wait after the last renewal of the Lease.",
    ),
    duration(
        "--leader-election-renew-deadline",
        "renew_deadline",
        default="40s",
        text="After how long without a renewal the replica at work stops.",
    ),
    duration(
        "--leader-election-retry-period",
        "retry_period",
        default="15s",
        text="How often the Lease is renewed, and checked by the others.",
    ),
)

cluster_options = gathered("cluster", ClusterFlags, _CLUSTER)
"""Adds the flags; the function gets them as `cluster: ClusterFlags`."""
