"""Settings of Cloudflare."""

from __future__ import annotations

from certwright.acme.solvers.dns01.hosts import cloudflare
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import CloudflareDNS


async def settings(spec: CloudflareDNS, values: HostValues) -> cloudflare.CloudflareSettings:
    """Raises `SolverError`."""
    endpoint = values.endpoint("cloudflare", cloudflare.ENDPOINT, "CLOUDFLARE_BASE_URL")
    if spec.api_token_secret_ref is not None:
        token = await values.word(spec.api_token_secret_ref, "apiTokenSecretRef")
        return cloudflare.CloudflareSettings(token=token, endpoint=endpoint)
    assert spec.api_key_secret_ref is not None, "admission requires one of the two"
    key = await values.word(spec.api_key_secret_ref, "apiKeySecretRef")
    return cloudflare.CloudflareSettings(key=key, email=spec.email, endpoint=endpoint)
