"""The CA certificate that `certwright trust` works on: from a file, or from objects of the server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from certwright.cli import related
from certwright.cli.access import Session
from certwright.cli.errors import Failed
from certwright.cli.format import at
from certwright.cli.resource_args import fetch, one_object
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.util.encoding import in_words
from certwright.pki import certificates
from certwright.pki.certificates import CertificateFacts
from certwright.pki.errors import PkiError

KINDS = (related.CERTIFICATES, related.SECRETS, related.ISSUERS, related.CLUSTER_ISSUERS)
_LARGEST = 1 << 20
"""Bytes of a file; a certificate has 1 to 10 kB."""


def of_file(path: Path) -> CertificateFacts:
    """The CA certificate in a file. Raises `Failed`."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise Failed(f"{path}: {in_words(error)}") from error
    return only_ca(content, str(path))


async def of_object(here: Session, words: tuple[str, ...], secrets_in: str) -> CertificateFacts:
    """The CA certificate of a Certificate, Secret, Issuer or ClusterIssuer. Raises `Failed`.

    `secrets_in` is the namespace of the Secrets of ClusterIssuers.
    """
    kind, name = one_object(words, KINDS, default=related.CERTIFICATES)
    namespace = here.namespace
    secret = name
    if kind is related.CERTIFICATES:
        certificate = await fetch(here, related.CERTIFICATES, name)
        secret = str((certificate.get("spec") or {}).get("secretName", ""))
    elif kind is not related.SECRETS:
        secret = _of_ca_issuer(await fetch(here, kind, name), f"{kind.kind} {name}")
        namespace = secrets_in if kind is related.CLUSTER_ISSUERS else namespace
    stored = await fetch(Session(here.client, namespace), SECRETS, secret)
    return _of_secret(stored, f"secret {namespace}/{secret}")


def _of_ca_issuer(issuer: dict[str, Any], title: str) -> str:
    name = ((issuer.get("spec") or {}).get("ca") or {}).get("secretName")
    if not name:
        raise Failed(
            f"{title} has no CA Secret (spec.ca is missing); name a Certificate or a Secret, or use --file"
        )
    return str(name)


def _of_secret(secret: Secret, title: str) -> CertificateFacts:
    if pem := secret.data.get("ca.crt"):
        return only_ca(pem, f"ca.crt of {title}")
    if pem := secret.data.get("tls.crt"):
        return only_ca(pem, f"tls.crt of {title} (it has no ca.crt)")
    raise Failed(f"{title} has neither ca.crt nor tls.crt")


def only_ca(pem: bytes, title: str) -> CertificateFacts:
    """The certificate of a PEM text with only one, which must be a CA's. Raises `Failed`."""
    try:
        chain = certificates.read_chain(pem)
    except PkiError as error:
        raise Failed(f"{title}: {error}") from error
    if not chain[0].is_ca:
        raise Failed(
            f"{title} is the certificate of {chain[0].subject_text or '(no subject)'}, which is not a CA; "
            "only CA certificates can be trusted"
        )
    if len(chain) > 1:
        raise Failed(f"{title} has {len(chain)} certificates; save the CA's alone, and use --file")
    return chain[0]


def check_dates(ca: CertificateFacts, now: datetime) -> None:
    """Raise `Failed` for a CA that has expired."""
    if ca.not_after <= now:
        raise Failed(f"the CA {ca.subject_text} expired at {at(ca.not_after)}; trust its successor instead")
