"""Settings of Akamai."""

from __future__ import annotations

from certwright.acme.solvers.dns01.hosts import akamai
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import AkamaiDNS


async def settings(spec: AkamaiDNS, values: HostValues) -> akamai.AkamaiSettings:
    """Raises `SolverError`."""
    host = spec.service_consumer_domain.removeprefix("https://").rstrip("/")
    return akamai.AkamaiSettings(
        endpoint=values.named_endpoint("akamai", f"https://{host}"),
        client_token=await values.word(spec.client_token_secret_ref, "clientTokenSecretRef"),
        access_token=await values.word(spec.access_token_secret_ref, "accessTokenSecretRef"),
        client_secret=await values.word(spec.client_secret_secret_ref, "clientSecretSecretRef"),
    )
