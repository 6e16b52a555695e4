"""The flags of controllers, with cert-manager's names: what they do, certificates of Ingresses and Gateways,
and their work beside an API server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import click

from certwright.cli import lazy
from certwright.cli.flags import duration, file, flag, number, repeated, switch, values_of, words
from certwright.kube.api import naming
from certwright.kube.util.durations import format_duration
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES


def _parse_namespace(value: str) -> str:
    if naming.check_name(value, rule="label") is not None:
        raise click.BadParameter(
            f"{value!r} is not a namespace: a name has at most {naming.MAX_LABEL} lower-case letters, digits"
            " and `-`, and begins and ends with a letter or digit"
        )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """The settings of the controllers. Raises `click.UsageError`."""

    SECTION: ClassVar = "Controllers"

    controllers: str = flag(
        "--controllers",
        "Which controllers run: `*` for all, names, `-name` to leave one out; empty for none.",
        metavar="LIST",
        default="*",
        often=True,
    )
    cluster_resource_namespace: str = flag(
        "--cluster-resource-namespace",
        "Namespace of the Secrets of ClusterIssuers.",
        metavar="NS",
        default="kube-system",
        parse=_parse_namespace,
    )
    backoff_minimum: timedelta = duration(
        "--certificate-request-minimum-backoff-duration",
        "How long to wait after the first failed request; doubled after each further one.",
        default="1h",
        reloads=True,
    )
    backoff_maximum: timedelta = duration(
        "--certificate-request-maximum-backoff-duration",
        "The longest wait between failed requests.",
        default="32h",
        reloads=True,
    )
    issuer_attempts_per_hour: int = number(
        "--issuer-attempts-per-hour",
        "How many attempts of all certificates a failing issuer gets in an hour; 0: no limit.",
        at_least=0,
        default=12,
        reloads=True,
    )
    certificate_owner_references: bool = switch(
        "--enable-certificate-owner-ref",
        "Whether a Certificate's Secret belongs to it, and is deleted with it.",
        default=False,
        reloads=True,
    )
    copied_annotation_prefixes: tuple[str, ...] = repeated(
        "--copied-annotation-prefixes",
        "Annotations of a Certificate that its requests get: their beginnings, * for all, - before what "
        "they do not get.",
        metavar="LIST",
        default=(",".join(COPIED_ANNOTATION_PREFIXES),),
        show_default=True,
        parse=lambda lists: tuple(prefix for text in lists for prefix in text.split(",") if prefix),
        reloads=True,
    )
    notifications: Path | None = file(
        "--notifications",
        "Report failing and expiring certificates and failing issuers to the destinations of this file: "
        "mail, webhooks, apprise.",
        reloads=True,
        often=True,
    )
    feature_gates: str = flag(
        "--feature-gates",
        "Enable or disable features, e.g. SecretsFilteredCaching=false.  [default: all on, but PostQuantum]",
        metavar="GATE=BOOL,…",
        default="",
    )

    def __post_init__(self) -> None:
        if self.backoff_minimum > self.backoff_maximum:
            raise click.UsageError(
                f"the minimum backoff ({format_duration(self.backoff_minimum)}) is longer than "
                f"the maximum ({format_duration(self.backoff_maximum)})"
            )

    def settings(self, **others: Any) -> lazy.app.ControllerOptions:
        """The settings of the process, with those of other flags."""
        return lazy.app.ControllerOptions(**values_of(self), **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimFlags:
    """The members of `ShimOptions`: certificates of Ingresses, Gateways and ListenerSets."""

    SECTION: ClassVar = "Ingresses and Gateways"

    issuer_name: str = flag(
        "--default-issuer-name",
        "Issuer of Ingresses with an annotation of --auto-certificate-annotations that name none.",
        metavar="NAME",
        default="",
        reloads=True,
    )
    issuer_kind: str = flag(
        "--default-issuer-kind",
        "Kind of the default issuer.",
        metavar="KIND",
        default="Issuer",
        reloads=True,
    )
    issuer_group: str = flag(
        "--default-issuer-group",
        "API group of the default issuer.",
        metavar="GROUP",
        default="cert-manager.io",
        reloads=True,
    )
    auto_annotations: tuple[str, ...] = words(
        "--auto-certificate-annotations",
        "Annotations with which an Ingress gets certificates of the default issuer.  "
        "[default: kubernetes.io/tls-acme]",
        default=("kubernetes.io/tls-acme",),
        reloads=True,
    )
    extra_annotations: tuple[str, ...] = words(
        "--extra-certificate-annotations",
        "Annotations that are copied from an Ingress, Gateway or ListenerSet to its Certificates.",
        reloads=True,
    )
    extra_protocols: tuple[str, ...] = words(
        "--gateway-api-extra-protocols",
        "Protocols of listeners that use TLS, besides HTTPS and TLS.",
        reloads=True,
    )
    gateways: bool = switch(
        "--enable-gateway-api",
        "Certificates for Gateways; no error where there are no Gateways.",
        default=True,
        reloads=True,
    )
    listener_sets: bool = switch(
        "--enable-gateway-api-listenerset",
        "Certificates for ListenerSets.",
        default=True,
        reloads=True,
    )

    @property
    def settings(self) -> lazy.app.ShimOptions:
        """The settings of the process."""
        return lazy.app.ShimOptions(**values_of(self))


LEADER_ELECT = switch(
    "--leader-elect",
    "Leader election: one of several replicas works, and the others wait for its lease.",
    default=True,
    section="Controllers",
)
LEADER_ELECTION_NAMESPACE = flag(
    "--leader-election-namespace",
    "Namespace of the Lease of the leader election.",
    metavar="NS",
    default="kube-system",
    section="Controllers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """The members of `app.ClusterSettings`: client throttling, leader election and sharding beside an API
    server. `identity` None: a new one at each start. Raises `click.UsageError`."""

    SECTION: ClassVar = "Replicas"

    kube_api_qps: float = flag(
        "--kube-api-qps",
        "Average requests per second to the API server; ignored where the server applies priority "
        "and fairness.",
        metavar="NUMBER",
        type=float,
        default=20.0,
    )
    kube_api_burst: int = flag(
        "--kube-api-burst",
        "Size of the burst of requests above --kube-api-qps.",
        metavar="NUMBER",
        type=int,
        default=50,
    )
    shards: int = number(
        "--shards",
        "Number of shards of the Certificates, i.e. of replicas that work at the same time; the "
        "same number for all of them.",
        metavar="NUMBER",
        default=1,
    )
    identity: str | None = flag(
        "--identity",
        "The name of this replica on its Leases, which no other may have; a restart with the same "
        "name takes them over immediately.  [default: a new one at each start]",
        metavar="NAME",
    )
    leader_elect: bool = LEADER_ELECT
    leader_election_namespace: str = LEADER_ELECTION_NAMESPACE
    lease_duration: timedelta = duration(
        "--leader-election-lease-duration",
        "How long the others wait after the last renewal of the Lease.",
        default="60s",
    )
    renew_deadline: timedelta = duration(
        "--leader-election-renew-deadline",
        "After how long without a renewal the replica at work stops.",
        default="40s",
    )
    retry_period: timedelta = duration(
        "--leader-election-retry-period",
        "How often the Lease is renewed, and checked by the others.",
        default="15s",
    )

    def __post_init__(self) -> None:
        if self.kube_api_qps >= 0 and not 0 < self.kube_api_qps <= self.kube_api_burst:
            raise click.UsageError(
                "--kube-api-qps must be above 0 and --kube-api-burst not below it; a negative "
                "--kube-api-qps means no limit"
            )
