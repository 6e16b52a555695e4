"""Settings of PowerDNS."""

from __future__ import annotations

from certwright.acme.solvers.dns01.hosts import powerdns
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import PowerDNS


async def settings(spec: PowerDNS, values: HostValues) -> powerdns.PowerDnsSettings:
    """Raises `SolverError`."""
    key = await values.word(spec.api_key_secret_ref, "apiKeySecretRef")
    endpoint = values.named_endpoint("powerDNS", spec.host)
    return powerdns.PowerDnsSettings(endpoint=endpoint, key=key, server_id=spec.server_id or "localhost")
