"""What the target Secret is to hold, and how to change the one that is there into it.

Whatever others have put there (further keys, labels, annotations, the type) stays as it is.

Source: cert-manager `internal/controller/certificates/secrets.go`; cert-manager documentation, "Annotations
reference".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from certwright.controllers.certificates.facts import KeyFacts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names
from certwright.resources.certificate import Certificate
from certwright.resources.core import Secret
from certwright.resources.meta import ObjectMeta
from certwright.resources.request import CertificateRequest

EncodeKey = Callable[[KeyFacts, str], bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """Our part of a Secret. A value of None means that the entry must not be there."""

    data: Mapping[str, bytes | None]
    labels: Mapping[str, str]
    annotations: Mapping[str, str | None]


def holds(snapshot: Snapshot, request: CertificateRequest) -> bool:
    """Whether the target Secret holds what this request gave, with the key it was made for."""
    secret, key = snapshot.secret, snapshot.next_key
    if secret is None or key is None:
        return False
    held = snapshot.facts.key(secret.data.get(names.TLS_PRIVATE_KEY_KEY, b""))
    return (
        isinstance(held, KeyFacts)
        and held.public == key.public
        and secret.data.get(names.TLS_CERT_KEY) == request.status.certificate
        and secret.data.get(names.CA_CERT_KEY, b"") == request.status.ca
        and secret.metadata.annotations.get(names.CERTIFICATE_NAME) == snapshot.certificate.metadata.name
    )


def wanted_content(snapshot: Snapshot, request: CertificateRequest, encode_key: EncodeKey) -> Content:
    """Our part of the Secret after this request. The snapshot must have `next_key`."""
    certificate, key = snapshot.certificate, snapshot.next_key
    assert key is not None
    found = snapshot.facts.certificate(request.status.certificate)
    facts = found if isinstance(found, CertificateFacts) else None
    template = certificate.spec.secret_template
    return Content(
        data={
            names.TLS_CERT_KEY: request.status.certificate,
            names.TLS_PRIVATE_KEY_KEY: encode_key(key, certificate.spec.key.encoding_or_default),
            names.CA_CERT_KEY: request.status.ca or None,
        },
        labels={**(template.labels if template else {}), names.FAO_LABEL: "true"},
        annotations={
            **(template.annotations if template else {}),
            **issuer_annotations(certificate),
            **(certificate_annotations(facts) if facts else {}),
        },
    )


def new_secret(certificate: Certificate, content: Content) -> Secret:
    """The Secret where there was none."""
    meta = ObjectMeta(
        name=certificate.spec.secret_name,
        namespace=certificate.metadata.namespace,
        labels=content.labels,
        annotations={key: value for key, value in content.annotations.items() if value is not None},
    )
    data = {key: value for key, value in content.data.items() if value is not None}
    return Secret(metadata=meta, type=names.TLS_SECRET_TYPE, data=data)


def patch_for(secret: Secret, content: Content) -> dict[str, Any]:
    """The merge patch (RFC 7386) that gives `secret` our content, at the version that we have seen."""
    meta = secret.metadata
    notes = {k: v for k, v in content.annotations.items() if v is not None or k in meta.annotations}
    data = {k: v for k, v in content.data.items() if v is not None or k in secret.data}
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "labels": dict(content.labels),
            "annotations": notes,
        },
        "data": data,
    }


def issuer_annotations(certificate: Certificate) -> dict[str, str]:
    """Which Certificate, and which issuer."""
    issuer = certificate.spec.issuer_ref
    return {
        names.CERTIFICATE_NAME: certificate.metadata.name,
        names.ISSUER_NAME: issuer.name,
        names.ISSUER_KIND: issuer.kind_or_default,
        names.ISSUER_GROUP: issuer.group_or_default,
    }


def certificate_annotations(facts: CertificateFacts) -> dict[str, str | None]:
    """What the certificate says, as text; what it does not say and is optional becomes None."""
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
        **{key: value or None for key, value in optional.items()},
        names.COMMON_NAME: facts.common_name,
        names.ALT_NAMES: ",".join(facts.dns_names),
        names.IP_SANS: ",".join(facts.ip_addresses),
        names.URI_SANS: ",".join(facts.uris),
    }


def _csv(values: Iterable[str]) -> str:
    # A value may hold a comma ("Example, Inc."): quoted as in a file of comma-separated values.
    if not any(mark in value for value in values for mark in ',"\r\n'):
        return ",".join(values)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
