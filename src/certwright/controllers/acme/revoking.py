"""Revocation with the certificate's own key: no account is needed for it (RFC 8555 §7.6). Where the server
refuses that, the account's key signs.

No controller revokes by itself; a command requests it. Renewal follows by renewal information (RFC 9773), or
by `certwright renew`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from certwright.acme.protocol import account
from certwright.acme.protocol.client import AcmeClient, MakeTransport
from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import TlsOptions
from certwright.acme.protocol.orders import RevocationReason
from certwright.acme.protocol.orders import revoke as revocation
from certwright.controllers.cache.caches import recorded_signer
from certwright.issuers import acme_account
from certwright.kit.outgoing import HTTPS_ONLY, ServerRules
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import names
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS, ISSUERS

REASONS: Final = {
    "unspecified": RevocationReason.UNSPECIFIED,
    "keyCompromise": RevocationReason.KEY_COMPROMISE,
    "affiliationChanged": RevocationReason.AFFILIATION_CHANGED,
    "superseded": RevocationReason.SUPERSEDED,
    "cessationOfOperation": RevocationReason.CESSATION_OF_OPERATION,
    "privilegeWithdrawn": RevocationReason.PRIVILEGE_WITHDRAWN,
}
"""By the names of RFC 5280 §5.3.1: those that CAs take from subscribers."""


class CannotRevoke(Exception):
    """A certificate was not revoked; the text is one sentence with the fix."""


class Revoked(msgspec.Struct, frozen=True):
    """What has been revoked, and where: the serial number in hexadecimal, the server's directory."""

    serial: str
    server: str


class Holder(msgspec.Struct, frozen=True):
    """The Certificate whose certificate is revoked, or the Secret that was issued here (`is_secret`)."""

    namespace: str
    name: str
    is_secret: bool = False


async def revoke(
    client: Client,
    holder: Holder,
    *,
    reason: str,
    user_agent: str,
    rules: ServerRules = HTTPS_ONLY,
    cluster_resource_namespace: str = "kube-system",
    make_transport: MakeTransport | None = None,
) -> Revoked:
    """Revoke the holder's certificate.

    `reason` is one of `REASONS`; `rules` decide whether the server may be called. A certificate that was
    already revoked is a success. If the server refuses the certificate's key, the account's key signs, if it
    can be read. Raises `CannotRevoke`, `ApiError`.
    """
    namespace, secret_name, reference = holder.namespace, holder.name, IssuerReference(name="")
    if not holder.is_secret:
        certificate = await client.get(CERTIFICATES, holder.name, namespace)
        secret_name, reference = certificate.spec.secret_name, certificate.spec.issuer_ref
        if reference.is_set:
            requests = (await client.list(CERTIFICATE_REQUESTS, namespace)).items
            signer = recorded_signer(certificate, requests)
            if signer is None:
                words = f'{reference.kind} "{reference.name}"'
                raise CannotRevoke(f"no CertificateRequest records which member of {words} has signed it")
            reference = signer
    secret = await client.get(SECRETS, secret_name, namespace)
    if holder.is_secret:
        annotations = secret.metadata.annotations
        reference = IssuerReference(
            name=annotations.get(names.ISSUER_NAME, ""), kind=annotations.get(names.ISSUER_KIND, "")
        )
    issuer = await _acme_issuer(client, reference, namespace)
    try:
        facts = read_certificate(secret.data.get(names.TLS_CERT_KEY, b""))
        key = AccountKey.from_pem(secret.data.get(names.TLS_PRIVATE_KEY_KEY, b""))
    except PkiError as error:
        raise CannotRevoke(
            f'Secret "{secret_name}" holds no certificate with its key that can be used: {error}'
        ) from error

    def now() -> datetime:
        return datetime.now(UTC)

    tls = TlsOptions(issuer.ca_bundle, skip_verify=issuer.skip_tls_verify)
    transport = (
        HttpTransport(tls, user_agent=user_agent, now=now, rules=rules)
        if make_transport is None
        else make_transport(tls)
    )
    server = AcmeClient(issuer.server, key, transport, now=now)
    try:
        await server.run(revocation, facts, reason=REASONS[reason], key=key)
    except AcmeError as error:
        why = f"{issuer.server} has not revoked it: {error}"
        if not (isinstance(error, Refused) and error.problem.may_be_of_key):
            raise CannotRevoke(why) from error
        # RFC 8555 §7.6 has a server accept either key; some accept the account's only.
        is_cluster = reference.kind_or_default == CLUSTER_ISSUERS.kind
        secrets_in = cluster_resource_namespace if is_cluster else namespace
        try:
            server.key = await _account_key(client, issuer, secrets_in)
            await server.run(account.find)
            await server.run(revocation, facts, reason=REASONS[reason])
        except _NoAccountKey as missing:
            raise CannotRevoke(f"{why}; it may want the account's key, but {missing}") from error
        except AcmeError as second:
            raise CannotRevoke(f"{why}; nor by the account's key: {second}") from second
    finally:
        await server.close()
    return Revoked(f"{facts.serial_number:x}", issuer.server)


class _NoAccountKey(Exception):
    """The account's key cannot be read; the text is a clause."""


async def _account_key(client: Client, issuer: ACMEIssuer, namespace: str) -> AccountKey:
    try:
        secret = await client.get(SECRETS, issuer.private_key_secret_ref.name, namespace)
    except ApiError as error:
        raise _NoAccountKey(f"{error} (namespace {namespace})") from error
    key = acme_account.account_key(issuer, secret.data)
    if key is None:
        raise _NoAccountKey(acme_account.missing_key(issuer))
    return key


async def _acme_issuer(client: Client, reference: IssuerReference, namespace: str) -> ACMEIssuer:
    message = f'{reference.kind_or_default} "{reference.name}"'
    if not reference.name or not reference.is_ours:
        raise CannotRevoke("nothing says which ACME issuer it is from; name the Certificate instead")
    try:
        if reference.kind_or_default == CLUSTER_ISSUERS.kind:
            spec = (await client.get(CLUSTER_ISSUERS, reference.name)).spec
        else:
            spec = (await client.get(ISSUERS, reference.name, namespace)).spec
    except NotFound:
        raise CannotRevoke(f"{message}, whose ACME server would revoke it, does not exist") from None
    if spec.acme is None:
        raise CannotRevoke(f"{message} is not an ACME issuer; only ACME servers can revoke certificates")
    return spec.acme
