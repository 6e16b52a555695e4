"""Flags of controllers beside an API server: client throttling, leader election and sharding."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import click

from certwright.cli import daemon
from certwright.cli.options import TRUTH, Decorator, gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """The settings: the members of `app.ClusterSettings`. `identity` None: a new one at each start. Raises
    `click.UsageError`."""

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


def _duration(flag: str, name: str, default: str, text: str) -> Decorator:
    return click.option(
        flag,
        name,
        metavar="DURATION",
        default=default,
        show_default=True,
        callback=daemon.parse_duration_option,
        help=text,
    )


LEADER_ELECT = click.option(
    "--leader-elect",
    metavar="BOOL",
    type=TRUTH,
    default=True,
    # As Go's flags: without a value it means true.
    is_flag=False,
    flag_value=True,
    help="Leader election: one of several replicas works, and the others wait for its lease.  [default: "
    "true]",
)
LEADER_ELECTION_NAMESPACE = click.option(
    "--leader-election-namespace",
    metavar="NS",
    default="kube-system",
    show_default=True,
    help="Namespace of the Lease of the leader election.",
)

_OPTIONS = (
    click.option(
        "--kube-api-qps",
        metavar="NUMBER",
        type=float,
        default=20.0,
        show_default=True,
        help="Average requests per second to the API server; ignored where the server applies priority "
        "and fairness.",
    ),
    click.option(
        "--kube-api-burst",
        metavar="NUMBER",
        type=int,
        default=50,
        show_default=True,
        help="Size of the burst of requests above --kube-api-qps.",
    ),
    click.option(
        "--shards",
        metavar="NUMBER",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of shards of the Certificates, i.e. of replicas that work at the same time; the "
        "same number for all of them.",
    ),
    click.option(
        "--identity",
        metavar="NAME",
        help="The name of this replica on its Leases, which no other may have; a restart with the same "
        "name takes them over immediately.  [default: a new one at each start]",
    ),
    LEADER_ELECT,
    LEADER_ELECTION_NAMESPACE,
    _duration(
        "--leader-election-lease-duration",
        "lease_duration",
        "60s",
        "How long the others wait after the last renewal of the Lease.",
    ),
    _duration(
        "--leader-election-renew-deadline",
        "renew_deadline",
        "40s",
        "After how long without a renewal the replica at work stops.",
    ),
    _duration(
        "--leader-election-retry-period",
        "retry_period",
        "15s",
        "How often the Lease is renewed, and checked by the others.",
    ),
)

cluster_options = gathered("cluster", ClusterFlags, _OPTIONS)
"""Adds the flags; the function gets them as `cluster: ClusterFlags`."""
