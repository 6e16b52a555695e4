"""The certificates that a server knows: Certificates, and other Secrets with a certificate."""

from __future__ import annotations

from msgspec.structs import replace

from certwright.cli import related
from certwright.cli.diagnosis import issuer_ref
from certwright.cli.errors import report_warning
from certwright.cli.format import parse_time, sentence
from certwright.cli.inventory.records import Record, Source
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import ApiError, Forbidden
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.resources import names

# Some 8 kB each.
_PAGE = 500


async def read_cluster(client: Client, namespace: str) -> list[Record]:
    """The records of that namespace, of all if it is empty.

    Without the right to list Secrets there are only the Certificates, by the dates in their status; a warning
    names what is missing. Raises `ApiError` if Certificates cannot be listed.
    """
    certificates = (await client.list(related.CERTIFICATES, namespace, limit=_PAGE)).items
    secrets = {
        (secret.metadata.namespace, secret.metadata.name): secret
        for secret in await _secrets(client, namespace)
    }
    records = []
    for certificate in certificates:
        place = (certificate["metadata"]["namespace"], (certificate.get("spec") or {}).get("secretName", ""))
        records.append(_of_certificate(certificate, secrets.pop(place, None)))
    return [*records, *(_of_secret(secret) for secret in secrets.values())]


async def _secrets(client: Client, namespace: str) -> list[Secret]:
    """Those of the types in which programs keep certificates; others are not even transferred."""
    try:
        listed = [
            await client.list(SECRETS, namespace, fields=f"type={kind}", limit=_PAGE)
            for kind in (names.TLS_SECRET_TYPE, "Opaque")
        ]
    except Forbidden as error:
        report_warning(f"Secrets are left out: {sentence(str(error))}")
    except ApiError as error:
        report_warning(f"Secrets cannot be listed: {sentence(str(error))}")
    else:
        tls, opaque = (listing.items for listing in listed)
        return [*tls, *(secret for secret in opaque if names.TLS_CERT_KEY in secret.data)]
    return []


def _of_certificate(certificate: related.Json, secret: Secret | None) -> Record:
    meta, status = certificate["metadata"], certificate.get("status") or {}
    reference = issuer_ref(certificate)
    record = Record(
        source=Source.CERTIFICATE,
        namespace=meta["namespace"],
        name=meta["name"],
        issuer=f"{reference['kind']}/{reference['name']}",
        names=tuple(map(str, (certificate.get("spec") or {}).get("dnsNames") or ())),
        not_before=parse_time(status.get("notBefore")),
        not_after=parse_time(status.get("notAfter")),
        renewal_time=parse_time(status.get("renewalTime")),
    )
    return record if secret is None else _with_content(record, secret)


def _of_secret(secret: Secret) -> Record:
    meta = secret.metadata
    return _with_content(Record(source=Source.SECRET, namespace=meta.namespace, name=meta.name), secret)


def _with_content(record: Record, secret: Secret) -> Record:
    content = secret.data.get(names.TLS_CERT_KEY, b"")
    if not content:
        return replace(record, problem=_problem(secret, "the entry is missing"))
    try:
        return record.with_facts(read_certificate(content))
    except PkiError as error:
        return replace(record, problem=_problem(secret, str(error)))


def _problem(secret: Secret, reason: str) -> str:
    meta = secret.metadata
    return f"{names.TLS_CERT_KEY} of Secret {meta.namespace}/{meta.name}: {reason}"
