"""Objects as cert-manager (1.1 to 1.21) writes them, as JSON: status, annotations, owners, managed fields.

The facts are those of cert-manager's API and controllers; the forms of older versions are named where they
differ.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from cryptography import x509

from support.world import START
from takeover.go_x509 import Authority, Key, Names, below, csr_pem, key_pem, new_key, root

Json = dict[str, Any]
NAMESPACE = "default"
BORN = START - timedelta(days=10)
LIFE = timedelta(days=90)
ISSUING = "cert-manager-certificates-issuing"
READY = "Certificate is up to date and has not expired"
ACCOUNT = "system:serviceaccount:cert-manager:cert-manager"

ROOT = root("Old Root", BORN - timedelta(days=300), timedelta(days=3650))
INTERMEDIATE = below(ROOT, "Old CA", BORN - timedelta(days=200), timedelta(days=1800))


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def b64(data: bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(data).decode()


def uid_of(kind: str, name: str) -> str:
    """A UID that stays the same in every run."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}"))


def meta(kind: str, name: str, namespace: str = NAMESPACE, **more: Any) -> Json:
    """Metadata as the API server has completed it."""
    metadata = {
        "name": name,
        "uid": uid_of(kind, f"{namespace}/{name}"),
        "creationTimestamp": stamp(BORN),
        "generation": 1,
    }
    if namespace:
        metadata["namespace"] = namespace
    return metadata | {key: value for key, value in more.items() if value}


def owner(kind: str, name: str, *, api: str = "cert-manager.io/v1", namespace: str = NAMESPACE) -> Json:
    return {
        "apiVersion": api,
        "kind": kind,
        "name": name,
        "uid": uid_of(kind, f"{namespace}/{name}"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(kind: str, status: str, reason: str, message: str, *, generation: int | None = None) -> Json:
    """A condition; those of Certificates and issuers have `observedGeneration` since 1.3."""
    document: Json = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(BORN),
    }
    return document if generation is None else document | {"observedGeneration": generation}


def managed(manager: str, fields: Json, *, operation: str = "Apply", subresource: str = "") -> Json:
    """An entry of `metadata.managedFields`."""
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": stamp(BORN),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | {"subresource": subresource} if subresource else entry


def keys_of(encoded: Mapping[str, Any]) -> Json:
    """The keys of a map as managed fields have them."""
    return {f"f:{key}": {} for key in encoded}


@dataclass(frozen=True)
class Issued:
    """One Certificate, and what cert-manager keeps of it: its Secret and its current request.

    `spec` is what is added to (or, with None, taken from) the plain spec; `old_spec` are fields as they were
    when the request was made. `modern`: by a version that applies (1.8 and later).
    """

    name: str
    issuer: Mapping[str, str]
    names: Names
    _: KW_ONLY
    key: Key = field(default_factory=new_key)
    authority: Authority = ROOT
    begin: datetime = BORN
    life: timedelta = LIFE
    spec: Json = field(default_factory=dict)
    request_spec: Json = field(default_factory=dict)
    revision: int = 1
    modern: bool = True
    has_ca: bool = True
    encoding: str = "PKCS1"
    certificate_meta: Json = field(default_factory=dict)
    secret_labels: Mapping[str, str] = field(default_factory=dict)
    secret_annotations: Mapping[str, str] = field(default_factory=dict)
    notes_of_others: Mapping[str, str] = field(default_factory=dict)
    secret_data: Mapping[str, bytes] = field(default_factory=dict)
    owned_secret: bool = False
    renewal: datetime | None = None
    usages: bool = True
    client: bool = False

    @cached_property
    def chain(self) -> bytes:
        """The certificate and those below the root."""
        return self.authority.sign(self.key, self.names, self.begin, self.life)

    @property
    def certificate_uid(self) -> str:
        """The UID of the Certificate."""
        return uid_of("Certificate", f"{NAMESPACE}/{self.name}")

    @property
    def renewal_time(self) -> datetime:
        """As Go computes it: to the second, downwards."""
        return self.renewal or (self.begin + self.life - self.life / 3).replace(microsecond=0)

    def certificate(self, *conditions: Json, **status: Any) -> Json:
        """The Certificate; Ready, unless other conditions are given."""
        generation = 1 if self.modern else None
        spec = {
            "secretName": self.name,
            "issuerRef": dict(self.issuer),
            "privateKey": {"algorithm": "ECDSA"},
            **_names_of(self.names),
            **self.spec,
        }
        return {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": meta("Certificate", self.name, **self.certificate_meta),
            "spec": {key: value for key, value in spec.items() if value is not None},
            "status": {
                "conditions": [
                    condition("Ready", "True", "Ready", READY, generation=generation),
                    *conditions,
                ],
                "notBefore": stamp(self.begin),
                "notAfter": stamp(self.begin + self.life),
                "renewalTime": stamp(self.renewal_time),
                "revision": self.revision,
                **status,
            },
        }

    def secret(self) -> Json:
        data = {"tls.crt": self.chain, "tls.key": key_pem(self.key, self.encoding), **self.secret_data}
        if self.has_ca:
            data["ca.crt"] = ROOT.pem
        labels = {**self.secret_labels, **({"controller.cert-manager.io/fao": "true"} if self.modern else {})}
        annotations = {**self.secret_annotations, **self._notes()}
        owners = [owner("Certificate", self.name)] if self.owned_secret else []
        made = meta("Secret", self.name, labels=labels, annotations=annotations, ownerReferences=owners)
        del made["generation"]
        made["managedFields"] = self._managed(data, labels, annotations)
        made["annotations"] = {**annotations, **self.notes_of_others}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": made,
            "type": "kubernetes.io/tls",
            "data": {key: b64(value) for key, value in data.items()},
        }

    def _notes(self) -> dict[str, str]:
        """Old versions wrote the issuer's kind and group as the spec has them, empty ones too."""
        asked, names = self.issuer, self.names
        optional = {
            "email-sans": ",".join(names.emails),
            "subject-organizations": ",".join(names.subject.get("organizations", ())),
            "subject-organizationalunits": ",".join(names.subject.get("organizationalUnits", ())),
            "subject-countries": ",".join(names.subject.get("countries", ())),
            "subject-localities": ",".join(names.subject.get("localities", ())),
            "subject-provinces": ",".join(names.subject.get("provinces", ())),
            "subject-streetaddresses": ",".join(names.subject.get("streetAddresses", ())),
            "subject-postalcodes": ",".join(names.subject.get("postalCodes", ())),
            "subject-serialnumber": names.serial_number,
        }
        leaf = x509.load_pem_x509_certificate(self.chain)
        common = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        notes = {
            "certificate-name": self.name,
            "issuer-name": asked["name"],
            "issuer-kind": asked.get("kind", "Issuer"),
            "issuer-group": asked.get("group", "cert-manager.io" if self.modern else ""),
            "common-name": str(common[0].value) if common else "",
            "alt-names": ",".join(names.dns),
            "ip-sans": ",".join(names.ips),
            "uri-sans": ",".join(names.uris),
            **({key: value for key, value in optional.items() if value} if self.modern else {}),
        }
        return {f"cert-manager.io/{key}": value for key, value in notes.items()}

    def _managed(self, data: Json, labels: Json, annotations: Json) -> list[Json]:
        parts: Json = {"f:annotations": keys_of(annotations)}
        if labels:
            parts["f:labels"] = keys_of(labels)
        if self.owned_secret:
            parts["f:ownerReferences"] = {
                f"k:{json.dumps({'uid': self.certificate_uid}, separators=(',', ':'))}": {}
            }
        fields = {"f:data": keys_of(data), "f:metadata": parts, "f:type": {}}
        theirs = managed(
            "kubectl-annotate",
            {"f:metadata": {"f:annotations": keys_of(self.notes_of_others)}},
            operation="Update",
        )
        if self.modern:
            return [managed(ISSUING, fields), *([theirs] if self.notes_of_others else [])]
        # Before 1.8: a plain update, by the name of the program.
        fields["f:data"]["."] = parts["f:annotations"]["."] = {}
        return [managed("controller", fields, operation="Update")]

    def request(self, *conditions: Json, name: str = "", revision: int | None = None, **status: Any) -> Json:
        """The request of that revision (None: the current one); issued, unless other conditions are given."""
        number = self.revision if revision is None else revision
        conditions = conditions or (approved(), issued())
        notes = {
            "cert-manager.io/certificate-name": self.name,
            "cert-manager.io/certificate-revision": str(number),
            "cert-manager.io/private-key-secret-name": f"{self.name}-x7k2p",
        }
        name = name or f"{self.name}-{number}"
        given = {"certificate": b64(self.chain)} | ({"ca": b64(ROOT.pem)} if self.has_ca else {})
        is_done = conditions[-1]["status"] == "True" and conditions[-1]["type"] == "Ready"
        optional = {key: self.spec[key] for key in ("duration", "usages") if self.spec.get(key)}
        if self.names.is_ca:
            optional["isCA"] = True
        spec = {
            "issuerRef": dict(self.issuer),
            "request": b64(csr_pem(self.key, self.names, usages=self.usages, client=self.client)),
            "username": ACCOUNT,
            "uid": "2b7e0d3a-0000-4000-8000-000000000001",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            **optional,
            **self.request_spec,
        }
        return {
            "apiVersion": "cert-manager.io/v1",
            "kind": "CertificateRequest",
            "metadata": meta(
                "CertificateRequest",
                name,
                annotations=notes,
                ownerReferences=[owner("Certificate", self.name)],
                generateName="" if name.endswith(f"-{number}") else f"{self.name}-",
            ),
            "spec": {key: value for key, value in spec.items() if value is not None},
            "status": {"conditions": list(conditions), **(given if is_done else {}), **status},
        }

    def all(self) -> list[Json]:
        """What there is in the steady state."""
        return [self.certificate(), self.secret(), self.request()]


def _names_of(names: Names) -> Json:
    subject: Json = dict(names.subject) | (
        {"serialNumber": names.serial_number} if names.serial_number else {}
    )
    fields = {
        "commonName": names.common_name,
        "subject": subject,
        "dnsNames": list(names.dns),
        "ipAddresses": list(names.ips),
        "uris": list(names.uris),
        "emailAddresses": list(names.emails),
        "isCA": names.is_ca,
    }
    return {key: value for key, value in fields.items() if value}


def approved() -> Json:
    """By cert-manager's own approver (1.3 and later)."""
    text = "Certificate request has been approved by cert-manager.io"
    return condition("Approved", "True", "cert-manager.io", text)


def issued() -> Json:
    """The request has been signed."""
    return condition("Ready", "True", "Issued", "Certificate fetched from issuer successfully")


def pending(message: str) -> Json:
    return condition("Ready", "False", "Pending", message)


def failed(message: str) -> Json:
    """The request has failed."""
    return condition("Ready", "False", "Failed", message)


def issuer(name: str, spec: Json, reason: str, message: str, *, kind: str = "Issuer", **status: Any) -> Json:
    """An Issuer or ClusterIssuer that is ready."""
    namespace = NAMESPACE if kind == "Issuer" else ""
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": kind,
        "metadata": meta(kind, name, namespace),
        "spec": spec,
        "status": {"conditions": [condition("Ready", "True", reason, message, generation=1)], **status},
    }


def secret(name: str, data: Mapping[str, bytes], *, namespace: str = NAMESPACE, **more: Any) -> Json:
    """A Secret that people have made."""
    made = meta("Secret", name, namespace, **more)
    del made["generation"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": made,
        "type": "Opaque",
        "data": {key: b64(value) for key, value in data.items()},
    }
