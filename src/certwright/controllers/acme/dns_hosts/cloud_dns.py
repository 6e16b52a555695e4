"""Settings of Google Cloud DNS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts import clouddns
from certwright.acme.solvers.dns01.hosts.api import Endpoint, Login
from certwright.acme.solvers.dns01.hosts.contract import HostedZone
from certwright.controllers.acme.dns_hosts.values import HostValues
from certwright.kube.util.decoders import json_decoder
from certwright.resources.solver import CloudDNS


class _KeyFile(msgspec.Struct):
    """The fields of a service account's key file that are used. Its URLs are not."""

    client_email: str
    private_key: str
    private_key_id: str = ""
    type: str = "service_account"


async def settings(spec: CloudDNS, values: HostValues) -> clouddns.CloudDnsSettings:
    """Raises `SolverError`."""
    name = spec.hosted_zone_name
    return clouddns.CloudDnsSettings(
        project=spec.project,
        login=await _login(spec, values),
        endpoint=values.endpoint("cloudDNS", clouddns.ENDPOINT),
        # The name of the DNS zone is not needed: Cloud DNS takes whole names.
        zone=HostedZone("", name) if name else None,
    )


async def _login(spec: CloudDNS, values: HostValues) -> Login:
    # An API elsewhere means credentials elsewhere, too, unless the operator names their place.
    elsewhere = values.endpoints.get("cloudDNS", "").rstrip("/")
    tokens = values.endpoint(
        "cloudDNS-token", values.replaced(elsewhere and f"{elsewhere}/token", clouddns.TOKENS)
    )
    if spec.service_account_secret_ref is not None:
        content = await values.secret(spec.service_account_secret_ref, "serviceAccountSecretRef")
        return _key(content, f"{values.path}.serviceAccountSecretRef", tokens)
    values.require_ambient("serviceAccountSecretRef")
    if path := values.environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
        try:
            content = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as error:
            raise SolverError(
                f"the file of GOOGLE_APPLICATION_CREDENTIALS cannot be read: {error.strerror}"
            ) from error
        return _key(content, "GOOGLE_APPLICATION_CREDENTIALS", tokens)
    host = values.environment.get("GCE_METADATA_HOST", "")
    metadata = values.replaced(elsewhere or (host and f"http://{host}"), clouddns.METADATA)
    return clouddns.MetadataServer(metadata=values.endpoint("cloudDNS-metadata", metadata))


def _key(content: bytes, where: str, tokens: Endpoint) -> clouddns.ServiceAccountKey:
    try:
        key_file = json_decoder(_KeyFile).decode(content)
    except msgspec.DecodeError:
        # The reason could quote the key.
        key_file = None
    if key_file is None or key_file.type != "service_account":
        raise SolverError(f"{where}: the content is not the key file (JSON) of a service account")
    return clouddns.ServiceAccountKey(
        email=key_file.client_email,
        key_id=key_file.private_key_id,
        key_pem=key_file.private_key,
        tokens=tokens,
    )
