"""Requests to ACME servers beside Orders: probes, and renewal information (RFC 9773)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import AcmeError
from certwright.controllers.acme.ari_poller import RenewalOffice
from certwright.controllers.acme.issuer_resolution import IssuerResolver, ResolvedIssuer
from certwright.controllers.acme.waits import Wait
from certwright.controllers.cache.caches import Caches, signer_of
from certwright.controllers.cache.shard_filter import owning_request
from certwright.kube.api.meta import ObjectKey, ObjectMeta, controller_of
from certwright.pki.certificates import CertificateFacts
from certwright.resources.acme import Order
from certwright.resources.certificate import Certificate
from certwright.resources.references import reference_to
from certwright.resources.request import CertificateRequest

# How long an existing certificate waits for its server's renewal information.
_PATIENCE_S = 1.0
_PROBE_TIMEOUT_S = 10.0


async def probe(resolver: IssuerResolver, issuer: ObjectKey) -> str:
    """GET the directory of an ACME issuer. Returns why that failed, in a sentence; empty: it was answered."""
    resolved = await resolver.find(
        reference_to(issuer), ObjectMeta(namespace=issuer.namespace, name=issuer.name)
    )
    if isinstance(resolved, Wait):
        return resolved.why
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            await resolved.client.directory(fresh=True)
    except TimeoutError:
        return f"{resolved.client.directory_url} did not answer within {_PROBE_TIMEOUT_S:g} s"
    except AcmeError as error:
        return str(error)
    return ""


async def client_of(resolver: IssuerResolver, caches: Caches, certificate: Certificate) -> AcmeClient | None:
    """The client of the issuer that signed for a Certificate; None where that is unknown, not ready, or no
    ACME issuer."""
    signer = signer_of(caches, certificate)
    if signer is None:
        return None
    resolved = await resolver.find(signer, certificate.metadata)
    return None if isinstance(resolved, Wait) else resolved.client


class EarlyRenewalInfo:
    """Asks about a certificate before it is stored: the answer goes into the Certificate's own last write.
    `get_request` returns the request of that name, None where it does not exist."""

    def __init__(
        self, renewals: RenewalOffice, get_request: Callable[[ObjectKey], CertificateRequest | None]
    ) -> None:
        self._renewals = renewals
        self._get_request = get_request

    async def poll(self, order: Order, resolved: ResolvedIssuer, facts: CertificateFacts) -> None:
        """Ask about the certificate of that Order, for a second at most."""
        owner = owning_request(order)
        if owner is None or resolved.spec.renewal_information_source == "None":
            return
        request = self._get_request(owner)
        certificate = controller_of(request.metadata) if request is not None else None
        if certificate is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._renewals.poll_now(resolved.client, certificate.uid, facts)
