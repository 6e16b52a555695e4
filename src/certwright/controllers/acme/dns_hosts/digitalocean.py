"""Settings of DigitalOcean."""

from __future__ import annotations

from certwright.acme.solvers.dns01.hosts import digitalocean
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import DigitalOceanDNS


async def settings(spec: DigitalOceanDNS, values: HostValues) -> digitalocean.DigitalOceanSettings:
    """Raises `SolverError`."""
    token = await values.word(spec.token_secret_ref, "tokenSecretRef")
    endpoint = values.endpoint("digitalocean", digitalocean.ENDPOINT, "DIGITALOCEAN_API_URL")
    return digitalocean.DigitalOceanSettings(token=token, endpoint=endpoint)
