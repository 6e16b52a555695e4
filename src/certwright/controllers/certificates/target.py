"""The desired content of the target Secret, and the configuration that is applied to bring it there.

Parts that others have added (further keys, labels, annotations, the type) stay: server-side apply removes
only parts that we have set and no longer apply.

Source: cert-manager `pkg/controller/certificates/issuing/internal/secret.go`; cert-manager documentation,
"Annotations reference".
"""

from __future__ import annotations

import csv
import io
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from certwright.controllers.cache.transforms import same_certificate
from certwright.controllers.certificates import rules
from certwright.controllers.certificates.ownership import Parts, parts
from certwright.controllers.certificates.parsed import KeyFacts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import ApiError
from certwright.kube.api.meta import OwnerReference
from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import Certificate, SecretTemplate
from certwright.resources.request import CertificateRequest

REFUSED: Final = "SecretRefused"

_NO_TEMPLATE = SecretTemplate()


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key, its certificate chain, and the CA (empty: not known), all PEM."""

    key_pem: bytes = field(repr=False)
    chain_pem: bytes
    ca_pem: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """Our part of a Secret. A part that a user has `asked` for must stay when other managers give it up, so
    we set it too, even where its value is right already."""

    data: Mapping[str, bytes] = field(repr=False)
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    asked: Parts


def refusal(snapshot: Snapshot, refused: ApiError) -> str:
    """Why the API server does not store the target Secret, and what to do."""
    secret, name = snapshot.secret, snapshot.certificate.spec.secret_name
    if secret is not None and secret.immutable:
        where = f"{name} -n {snapshot.certificate.metadata.namespace}"
        return (
            f'Secret "{name}" is immutable, so it cannot be updated to what this Certificate specifies: '
            f"delete it (kubectl delete secret {where}), and it is created again immediately"
        )
    return f'Secret "{name}" cannot be updated to what this Certificate specifies: {refused.message}'


def holds(snapshot: Snapshot, request: CertificateRequest) -> bool:
    """Whether the target Secret contains the certificate of this request, with the key it was made for."""
    secret, key = snapshot.secret, snapshot.next_key
    if secret is None or key is None:
        return False
    cached = snapshot.facts.key(secret.data.get(names.TLS_PRIVATE_KEY_KEY, b""))
    return (
        isinstance(cached, KeyFacts)
        and cached.public == key.public
        and same_certificate(request, secret.data.get(names.TLS_CERT_KEY))
        and (not request.status.ca.strip() or bool(secret.data.get(names.CA_CERT_KEY)))
        and secret.metadata.annotations.get(names.CERTIFICATE_NAME) == snapshot.certificate.metadata.name
    )


def needed(content: Content, stored: Secret) -> list[str]:
    """The parts that the server did not store and without which `holds` is never true."""
    data = (names.TLS_CERT_KEY, names.TLS_PRIVATE_KEY_KEY, names.CA_CERT_KEY)
    parts = [name for name in data if name in content.data and stored.data.get(name) != content.data[name]]
    key = names.CERTIFICATE_NAME
    if stored.metadata.annotations.get(key) != content.annotations.get(key):
        parts.append(f"the annotation {key}")
    return parts


def stored_pair(secret: Secret) -> Pair:
    """The content of the Secret, sound or not."""
    data = secret.data
    return Pair(
        key_pem=data.get(names.TLS_PRIVATE_KEY_KEY, b""),
        chain_pem=data.get(names.TLS_CERT_KEY, b""),
        ca_pem=data.get(names.CA_CERT_KEY, b""),
    )


def desired_content(
    certificate: Certificate,
    pair: Pair,
    facts: CertificateFacts | None,
    *,
    issuer: Mapping[str, str],
    keystores: Mapping[str, bytes],
    owner: OwnerReference | None,
) -> Content:
    """Our part of the Secret for this pair. `facts`: of its certificate; `issuer`: the annotations that name
    its signer and its Certificate."""
    template = certificate.spec.secret_template or _NO_TEMPLATE
    ca = {names.CA_CERT_KEY: pair.ca_pem} if pair.ca_pem else {}
    formats = output_formats(certificate, pair)
    return Content(
        data={
            names.TLS_CERT_KEY: pair.chain_pem,
            names.TLS_PRIVATE_KEY_KEY: pair.key_pem,
            **ca,
            **formats,
            **keystores,
        },
        labels={**template.labels, names.FAO_LABEL: "true"},
        annotations={
            **template.annotations,
            **issuer,
            **(certificate_annotations(facts) if facts else {}),
        },
        owner=owner,
        asked=parts(
            data=formats,
            labels=template.labels,
            annotations=template.annotations,
            owners=(owner.uid,) if owner else (),
        ),
    )


def output_formats(certificate: Certificate, pair: Pair) -> dict[str, bytes]:
    """The entries for `spec.additionalOutputFormats`."""
    formats: dict[str, bytes] = {}
    for output in certificate.spec.additional_output_formats:
        if output.type == "DER":
            # The bytes between the lines of a PEM text of one block, which we have written ourselves.
            lines = [line for line in pair.key_pem.splitlines() if not line.startswith(b"-----")]
            formats[names.DER_KEY] = b64decode(b"".join(lines))
        elif output.type == "CombinedPEM":
            formats[names.COMBINED_PEM_KEY] = pair.key_pem + b"\n" + pair.chain_pem
    return formats


def configuration(certificate: Certificate, secret: Secret | None, content: Content) -> dict[str, Any]:
    """The configuration to apply to `secret`; None: to a new Secret.

    The configuration contains the Secret's UID and version, so the apply is refused (`Conflict`) if the
    Secret has changed since then. An existing Secret keeps its type, which cannot change.
    """
    meta: dict[str, Any] = {
        "name": certificate.spec.secret_name,
        "namespace": certificate.metadata.namespace,
        "labels": content.labels,
        "annotations": content.annotations,
    }
    if secret is not None:
        meta |= {"uid": secret.metadata.uid, "resourceVersion": secret.metadata.resource_version}
    if content.owner is not None:
        meta["ownerReferences"] = [content.owner]
    kind = (secret.type if secret else "") or names.TLS_SECRET_TYPE
    return {"metadata": meta, "type": kind, "data": content.data}


def issuer_annotations(certificate: Certificate) -> dict[str, str]:
    """The annotations that name the Certificate and the issuer."""
    issuer = certificate.spec.issuer_ref
    return {
        names.CERTIFICATE_NAME: certificate.metadata.name,
        names.ISSUER_NAME: issuer.name,
        names.ISSUER_KIND: issuer.kind_or_default,
        names.ISSUER_GROUP: issuer.group_or_default,
    }


def certificate_annotations(facts: CertificateFacts) -> dict[str, str]:
    """The fields of the certificate, as text; missing optional ones are left out."""
    subject = facts.subject
    optional = {
        names.EMAIL_SANS: ",".join(facts.email_addresses),
        names.SUBJECT_ORGANIZATIONS: _csv(subject.organizations),
        names.SUBJECT_ORGANIZATIONAL_UNITS: _csv(subject.organizational_units),
        names.SUBJECT_COUNTRIES: _csv(subject.countries),
        names.SUBJECT_PROVINCES: _csv(subject.provinces),
        names.SUBJECT_LOCALITIES: _csv(subject.localities),
        names.SUBJECT_STREET_ADDRESSES: _csv(subject.street_addresses),
        names.SUBJECT_POSTAL_CODES: _csv(subject.postal_codes),
        names.SUBJECT_SERIAL_NUMBER: subject.serial_number,
    }
    return {
        **{key: value for key, value in optional.items() if value},
        names.COMMON_NAME: facts.common_name,
        names.ALT_NAMES: ",".join(facts.dns_names),
        names.IP_SANS: ",".join(facts.ip_addresses),
        names.URI_SANS: ",".join(facts.uris),
    }


def _csv(values: Iterable[str]) -> str:
    # A value may contain a comma ("Example, Inc."): quoted as in a file of comma-separated values.
    if not any(mark in value for value in values for mark in ',"\r\n'):
        return ",".join(values)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


# A CA that is replaced every hour but lives for years must not make every Secret grow without end.
_MOST_KEPT = 8
_ANOTHERS = (rules.issuer_is_another, rules.certificate_is_another)


def at_issuance(snapshot: Snapshot, issued_ca: bytes) -> bytes:
    """The bytes of `ca.crt` for a new certificate with which the issuer returned the CA `issued_ca`; empty:
    no such entry.

    Existing CAs of the same issuer are kept behind it until they expire. Idempotent.
    """
    known_ca = _stored_ca(snapshot)
    if not issued_ca or not known_ca or known_ca == issued_ca or not _is_of_same_issuer(snapshot):
        return issued_ca
    own = {ca.der for ca in chain.readable(issued_ca)}
    kept = [ca for ca in _valid(chain.readable(known_ca), snapshot) if ca.der not in own]
    return issued_ca + chain.pem_of(kept[:_MOST_KEPT])


def in_rest(snapshot: Snapshot) -> bytes:
    """The bytes of `ca.crt` between issuances; empty: no such entry.

    The issuer's current CA is appended to the existing CAs, so that new certificates of others are trusted
    before this certificate is renewed.
    """
    known_ca = _stored_ca(snapshot)
    if not known_ca or not snapshot.authority or not _is_of_same_issuer(snapshot):
        return known_ca
    top, existing = snapshot.authority[-1], chain.readable(known_ca)
    if not existing or any(ca.der == top.der for ca in existing) or top.not_after <= snapshot.now:
        return known_ca
    behind = [top, *_valid(existing[1:], snapshot)]
    return existing[0].pem + chain.pem_of(behind[:_MOST_KEPT])


def _stored_ca(snapshot: Snapshot) -> bytes:
    return snapshot.secret.data.get(names.CA_CERT_KEY, b"") if snapshot.secret else b""


def _is_of_same_issuer(snapshot: Snapshot) -> bool:
    """Whether the Secret's annotations name this Certificate, and the issuer that the spec names."""
    notes = snapshot.secret.metadata.annotations if snapshot.secret else {}
    return names.ISSUER_NAME in notes and rules.first(_ANOTHERS, snapshot) is None


def _valid(certificates: Iterable[CertificateFacts], snapshot: Snapshot) -> list[CertificateFacts]:
    return [ca for ca in certificates if ca.may_sign and ca.not_after > snapshot.now]
