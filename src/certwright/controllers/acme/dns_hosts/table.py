"""The DNS hosts: which module makes the settings of which field of `dns01`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from certwright.resources.solver import DNS01Solver

if TYPE_CHECKING:
    # Loaded, with its host, for the first challenge that needs it.
    from certwright.acme.solvers.dns01.hosts.contract import HostSettings
    from certwright.controllers.acme.dns_hosts.values import HostValues

HOSTS: Final = {
    "acme_dns": "acmeDNS",
    "akamai": "akamai",
    "azure_dns": "azureDNS",
    "cloud_dns": "cloudDNS",
    "cloudflare": "cloudflare",
    "digitalocean": "digitalocean",
    "lexicon": "lexicon",
    "plugin": "plugin",
    "power_dns": "powerDNS",
    "route53": "route53",
}
"""Fields of `DNS01Solver` whose provider is a DNS host, and their YAML names."""


def host_of(solver: DNS01Solver) -> str:
    """The field of the DNS host that a solver names; empty: it names none of this table."""
    return next((name for name in HOSTS if getattr(solver, name) is not None), "")


async def settings_of(solver: DNS01Solver, field: str, values: HostValues) -> HostSettings:
    """The settings of the host in that field. Raises `SolverError`."""
    module = importlib.import_module(f"certwright.controllers.acme.dns_hosts.{field}")
    return cast("HostSettings", await module.settings(getattr(solver, field), values))
