"""Whether the API server accepts and checks our kinds: cmctl's `check api`."""

from __future__ import annotations

from certwright.kube.api.errors import ApiError, Invalid, NotAcceptable, NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client
from certwright.resources.certificate import Certificate, CertificateSpec
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES

_NAME = "certwright-check"


class NotServed(Exception):
    """The API is not ready; the text says why, and what to do."""


async def check_api(client: Client, namespace: str) -> None:
    """Create two Certificates as dry runs: a good one, which must be accepted, and one without a name, which
    must be rejected. Raises `NotServed`, and `Unreachable`."""
    try:
        await client.create(CERTIFICATES, _certificate(namespace, ("example.com",)), dry_run=True)
    except NotFound as error:
        raise NotServed(
            f"the server does not serve {CERTIFICATES.resource}, or has no namespace {namespace}: {error}; "
            "apply the definitions of `certwright crds`, or name another namespace"
        ) from error
    except ApiError as error:
        raise NotServed(f"a valid Certificate is rejected: {error}") from error
    try:
        await client.create(CERTIFICATES, _certificate(namespace, ()), dry_run=True)
    except (Invalid, NotAcceptable):
        return
    except ApiError as error:
        raise NotServed(f"an invalid Certificate is rejected for another reason: {error}") from error
    raise NotServed(
        "the server accepts a Certificate without any name; apply the definitions of `certwright crds`, "
        "whose rules reject it"
    )


def _certificate(namespace: str, names: tuple[str, ...]) -> Certificate:
    issuer = IssuerReference(name=_NAME)
    spec = CertificateSpec(dns_names=names, secret_name=_NAME, issuer_ref=issuer)
    meta = ObjectMeta(generate_name="certwright-check-", namespace=namespace)
    return Certificate(metadata=meta, spec=spec)
