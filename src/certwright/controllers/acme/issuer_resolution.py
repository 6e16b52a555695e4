"""Issuer resolution: the issuer of an Order or a Challenge, and the client of its account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from certwright.acme.protocol.client import AcmeClient, Registry
from certwright.acme.protocol.errors import AcmeError
from certwright.acme.protocol.jws import AccountKey
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.waits import Wait
from certwright.controllers.cache.secrets import Dependents, Secrets
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.issuers import acme_account
from certwright.issuers.acme_account import AccountError
from certwright.issuers.contract import IssuerView
from certwright.kube.api.core import Secret
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.util.caches import Lru
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ACMEIssuer, ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference, reference_to

if TYPE_CHECKING:
    from certwright.acme.protocol.client import AcmeClient


_CHECK_AGAIN = timedelta(seconds=2)
_REMEMBERED = 1024
_PROBE_TIMEOUT_S = 10.0


class _Resolution(msgspec.Struct, frozen=True):
    """A resolved issuer, and its source objects: it is valid while they are unchanged."""

    issuer: Issuer | ClusterIssuer
    secret_key: ObjectKey
    secret: Secret | None
    resolved: ResolvedIssuer


class IssuerResolver:
    """Resolves references to issuers. `registry` has the ACME clients of this process. `dependents` records
    which object depends on which account key. `recheck_issuer` enqueues an issuer to be checked again.
    `signer_of` returns the issuer that signed for a Certificate.

    Each step of each Order and Challenge resolves its issuer here, and a thousand of them share one result.
    """

    def __init__(
        self,
        issuers: KnownIssuers,
        secrets: Secrets,
        dependents: Dependents[ObjectKey],
        *,
        registry: Registry,
        recheck_issuer: Callable[[IssuerView], None],
        signer_of: Callable[[Certificate], IssuerReference | None],
        now: Callable[[], datetime],
    ) -> None:
        self._issuers = issuers
        self._secrets = secrets
        self._dependents = dependents
        self._registry = registry
        self._distrust = recheck_issuer
        self._signer_of = signer_of
        self._now = now
        self._resolutions: Lru[ObjectKey, _Resolution] = Lru(_REMEMBERED)

    async def find(self, reference: IssuerReference, meta: ObjectMeta) -> ResolvedIssuer | Wait:
        """Resolve the issuer of the object with this metadata; a `Wait` if the issuer is missing or not
        ready. Raises what a GET of a Secret raises."""
        issuer = self._issuers.object_of(reference, meta.namespace)
        cached = self._resolutions.get(issuer.metadata.key) if issuer is not None else None
        if cached is not None and cached.issuer is issuer:
            secret = await self._read(cached.secret_key, meta.key)
            if secret is cached.secret and _is_settled(cached.resolved.view, cached.resolved.client):
                return cached.resolved
        return await self._look(reference, meta)

    async def account_of(
        self, reference: IssuerReference, meta: ObjectMeta
    ) -> tuple[ACMEIssuer, AccountKey] | None:
        """What a Challenge's proof is computed from, whether the issuer is ready or not; None where the
        issuer is missing, is no ACME issuer, or has no key. Raises what a GET of a Secret raises."""
        issuer = self._issuers.object_of(reference, meta.namespace)
        spec = issuer.spec.acme if issuer is not None else None
        if spec is None:
            return None
        namespace = self._issuers.secrets_of(reference, meta.namespace)
        secret = await self._read(ObjectKey(namespace, spec.private_key_secret_ref.name), meta.key)
        key = acme_account.account_key(spec, secret.data if secret is not None else None)
        return (spec, key) if key is not None else None

    async def client_of(self, certificate: Certificate) -> AcmeClient | None:
        """The client of the issuer that signed for a Certificate; None if the issuer is unknown, not ready,
        or no ACME issuer. Raises what a GET of a Secret raises."""
        signer = self._signer_of(certificate)
        resolved = await self.find(signer, certificate.metadata) if signer is not None else None
        return resolved.client if isinstance(resolved, ResolvedIssuer) else None

    async def probe(self, issuer: ObjectKey) -> str:
        """GET the directory of an ACME issuer. Returns why that failed, in a sentence; empty: it was
        answered."""
        meta = ObjectMeta(namespace=issuer.namespace, name=issuer.name)
        resolved = await self.find(reference_to(issuer), meta)
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

    async def _look(self, reference: IssuerReference, meta: ObjectMeta) -> ResolvedIssuer | Wait:

        name = f'{reference.kind_or_default} "{reference.name}"'
        issuer = self._issuers.object_of(reference, meta.namespace)
        state = self._issuers.find(reference, meta.namespace)
        if issuer is None or state is None:
            return Wait(f"{name} does not exist")
        spec = state.view.spec.acme
        if spec is None:
            return Wait(f"{name} is not an ACME issuer", is_final=True)
        if not state.ready:
            return Wait(f"{name} is not ready: {state.message}" if state.message else f"{name} is not ready")
        namespace = self._issuers.secrets_of(reference, meta.namespace)
        secret_key = ObjectKey(namespace, spec.private_key_secret_ref.name)
        secret = await self._read(secret_key, meta.key)
        data = secret.data if secret is not None else None
        try:
            client = acme_account.client_for(state.view, spec, data, self._registry)
        except AccountError as error:
            return Wait(str(error))
        if not _is_settled(state.view, client):
            self._distrust(state.view)
            # The issuer's controller writes nothing where all is well, so that no event would wake the key.
            return Wait(f"the account of {name} is being set up", self._now() + _CHECK_AGAIN)
        resolved = ResolvedIssuer(state.view, spec, client)
        self._resolutions.put(issuer.metadata.key, _Resolution(issuer, secret_key, secret, resolved))
        return resolved

    async def _read(self, secret: ObjectKey, whose: ObjectKey) -> Secret | None:
        self._dependents.add(whose, secret)
        return await self._secrets.get(secret)


def _is_settled(issuer: IssuerView, client: AcmeClient) -> bool:
    """Whether the account exists, and is that of the issuer's status. While a new registration is not written
    there, an Order would be annotated with the former account, and be superseded at once."""
    if client.is_lost:
        return False
    is_current = issuer.ready_at == issuer.generation
    return issuer.account is None or not is_current or client.kid == issuer.account.uri
