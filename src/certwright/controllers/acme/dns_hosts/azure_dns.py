"""Settings of Azure DNS: which cloud, and which of the three kinds of credentials."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts import azure
from certwright.acme.solvers.dns01.hosts.api import Endpoint, Login
from certwright.acme.solvers.dns01.hosts.contract import HostedZone
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.resources.solver import AzureDNS, AzureManagedIdentity


class _Cloud(msgspec.Struct, frozen=True):
    """The identity service and the resource manager of a cloud."""

    authority: str
    manager: str


_CLOUDS: Final = {
    "AzurePublicCloud": _Cloud("https://login.microsoftonline.com", "https://management.azure.com"),
    "AzureChinaCloud": _Cloud("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
    "AzureGermanCloud": _Cloud("https://login.microsoftonline.de", "https://management.microsoftazure.de"),
    "AzureUSGovernmentCloud": _Cloud(
        "https://login.microsoftonline.us", "https://management.usgovcloudapi.net"
    ),
}


async def settings(spec: AzureDNS, values: HostValues) -> azure.AzureSettings:
    """Raises `SolverError`."""
    cloud = _CLOUDS[spec.environment or "AzurePublicCloud"]
    zone = spec.hosted_zone_name.rstrip(".").lower()
    return azure.AzureSettings(
        subscription=spec.subscription_id,
        resource_group=spec.resource_group_name,
        login=await _login(spec, cloud, values),
        endpoint=values.endpoint("azureDNS", Endpoint(cloud.manager)),
        is_private=spec.zone_type == "AzurePrivateZone",
        zone=HostedZone(zone, zone) if zone else None,
    )


async def _login(spec: AzureDNS, cloud: _Cloud, values: HostValues) -> Login:
    # A manager elsewhere means credentials elsewhere, too, unless the operator names their place.
    elsewhere = values.endpoints.get("azureDNS", "")
    authority = values.endpoint(
        "azureDNS-login", values.replaced(elsewhere, Endpoint(cloud.authority)), "AZURE_AUTHORITY_HOST"
    )
    if spec.client_secret_secret_ref is not None:
        return azure.ServicePrincipal(
            authority=authority,
            tenant=spec.tenant_id,
            client_id=spec.client_id,
            resource=cloud.manager,
            secret=await values.word(spec.client_secret_secret_ref, "clientSecretSecretRef"),
        )
    values.require_ambient("clientID, clientSecretSecretRef and tenantID")
    identity = spec.managed_identity or AzureManagedIdentity()
    if path := values.environment.get("AZURE_FEDERATED_TOKEN_FILE"):
        return azure.ServicePrincipal(
            authority=authority,
            tenant=identity.tenant_id or values.environment.get("AZURE_TENANT_ID", ""),
            client_id=identity.client_id or values.environment.get("AZURE_CLIENT_ID", ""),
            resource=cloud.manager,
            assertion=await _read(path),
        )
    metadata = values.endpoint(
        "azureDNS-metadata",
        values.replaced(elsewhere, azure.METADATA),
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    )
    return azure.ManagedIdentity(
        resource=f"{cloud.manager}/",
        client_id=identity.client_id,
        resource_id=identity.resource_id,
        metadata=metadata,
    )


async def _read(path: str) -> str:
    try:
        return (await asyncio.to_thread(Path(path).read_text)).strip()
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "it is not text"
        raise SolverError(f"the file of AZURE_FEDERATED_TOKEN_FILE cannot be read: {words}") from error
