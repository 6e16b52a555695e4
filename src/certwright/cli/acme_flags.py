"""The ACME flags of `serve`, `run` and `controllers`: cert-manager's, those of our listeners, and the
operator's policy for issuers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path

import click

from certwright.cli import daemon, lazy, policy_flags
from certwright.cli.errors import report_warning
from certwright.cli.listen_flags import Address, parse_address
from certwright.cli.options import TRUTH, Decorator, gathered
from certwright.kube.api.naming import check_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverFlags(policy_flags.PolicyFlags):
    """Listeners and name servers of solvers, and what the operator allows issuers."""

    http01_listen: Address | None
    http01_check_port: int
    http01_nameservers: tuple[str, ...]
    tlsalpn01_listen: Address | None
    tlsalpn01_backend: Address | None
    dns01_nameservers: tuple[str, ...]
    dns01_recursive_only: bool

    @property
    def settings(self) -> lazy.app.AcmeSettings:
        """The settings of the process."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for field in fields(policy_flags.PolicyFlags):
            del given[field.name]
        return lazy.app.AcmeSettings(policy=self.policy, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeFlags(SolverFlags):
    """The ACME settings, and what the operator allows issuers."""

    max_concurrent_challenges: int
    http01_cluster_addresses: tuple[str, ...]
    http01_cluster_service: str | None
    http01_labels: dict[str, str]
    dns01_check_period: timedelta
    limits_file: Path | None


def parse_servers(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Parse name servers; each value may contain several, comma-separated."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def parse_labels(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse labels; each value may contain several, comma-separated."""
    labels: dict[str, str] = {}
    for text in (part.strip() for value in values for part in value.split(",")):
        key, equals, value = text.partition("=")
        if text and not equals:
            raise click.BadParameter(f"{text!r} is not a label; write e.g. team=web")
        if text:
            labels[key] = value
    if errors := check_labels(labels, "label"):
        raise click.BadParameter("; ".join(map(str, errors)))
    return labels


def warn_of_acme_process(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Accept the removed `--acme-process` for one release, with a warning."""
    if value is not None:
        report_warning("--acme-process no longer has any effect; remove it")


def _nameservers(flag: str, name: str, text: str, *, metavar: str = "HOST:PORT,…") -> Decorator:
    return click.option(flag, name, metavar=metavar, multiple=True, callback=parse_servers, help=text)


_SOLVER_OPTIONS = (
    click.option(
        "--http01-listen",
        metavar="HOST:PORT",
        callback=parse_address,
        help="Answer HTTP-01 challenges there, e.g. :80; without it, disabled.",
    ),
    click.option(
        "--http01-check-port",
        metavar="PORT",
        type=click.IntRange(1, 65535),
        default=80,
        show_default=True,
        help="Port of the HTTP-01 self-check, which precedes the notification of the CA.",
    ),
    _nameservers(
        "--acme-http01-solver-nameservers",
        "http01_nameservers",
        "Name servers used for the HTTP-01 self-check.  [default: the system]",
    ),
    click.option(
        "--tlsalpn01-listen",
        metavar="HOST:PORT",
        callback=parse_address,
        help="Answer TLS-ALPN-01 challenges there, e.g. :443; without it, disabled.",
    ),
    click.option(
        "--tlsalpn01-backend",
        metavar="HOST:PORT",
        callback=parse_address,
        help="Backend for all other TLS connections to --tlsalpn01-listen, which are forwarded unread.",
    ),
    _nameservers(
        "--dns01-recursive-nameservers",
        "dns01_nameservers",
        "Recursive name servers used for the DNS-01 self-check; an https URL: DNS over HTTPS, by "
        "`certwright[doh]`.  [default: the system's]",
        metavar="HOST:PORT|URL,…",
    ),
    click.option(
        "--dns01-recursive-nameservers-only",
        "dns01_recursive_only",
        metavar="BOOL",
        type=TRUTH,
        default=False,
        # As Go's flags: without a value it means true.
        is_flag=False,
        flag_value=True,
        help="Query recursive name servers only, never those of the zone.  [default: false]",
    ),
)
_OPTIONS = (
    click.option(
        "--max-concurrent-challenges",
        metavar="N",
        type=click.IntRange(min=1),
        default=60,
        show_default=True,
        help="Maximum number of concurrent challenges per CA.",
    ),
    *_SOLVER_OPTIONS,
    click.option(
        "--http01-cluster-address",
        "http01_cluster_addresses",
        metavar="IP,…",
        multiple=True,
        callback=parse_servers,
        help="Addresses of this replica that proxies of the cluster connect to for HTTP-01: solvers then "
        "create Ingresses or HTTPRoutes that lead there.  [default: none are created]",
    ),
    click.option(
        "--http01-cluster-service",
        metavar="NAMESPACE/NAME",
        help="Service that selects all replicas: proxies are led to the ready ones, too, as each answers "
        "every challenge.  [default: to this replica only]",
    ),
    click.option(
        "--acme-http01-solver-extra-labels",
        "http01_labels",
        metavar="KEY=VALUE,…",
        multiple=True,
        callback=parse_labels,
        help="Labels of the objects of HTTP-01 solvers: Services, EndpointSlices, Ingresses, HTTPRoutes.",
    ),
    click.option(
        "--dns01-check-retry-period",
        "dns01_check_period",
        metavar="DURATION",
        default="10s",
        show_default=True,
        callback=daemon.parse_duration_option,
        help="The longest interval between self-checks of a newly presented challenge.",
    ),
    click.option(
        "--acme-limits",
        "limits_file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Rate limits of ACME servers (YAML) that differ from the built-in ones.",
    ),
    click.option(
        "--acme-process",
        callback=warn_of_acme_process,
        expose_value=False,
        hidden=True,
        help="Has no effect any more; accepted for one release.",
    ),
)

acme_options = gathered("acme", AcmeFlags, (*_OPTIONS, *policy_flags.OPTIONS))
"""Adds the flags; the function gets them as `acme: AcmeFlags`."""
solver_options = gathered("solvers", SolverFlags, (*_SOLVER_OPTIONS, *policy_flags.OPTIONS))
"""Adds the flags of solvers alone; the function gets them as `solvers: SolverFlags`."""
