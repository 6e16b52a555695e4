"""Snapshot of one Certificate and its related objects: all that the rules and steps may read.

Frozen, so that every rule sees the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from certwright.controllers.cache.indexes import next_revision, revision_number
from certwright.controllers.cache.transforms import is_for_key
from certwright.controllers.certificates import desired
from certwright.controllers.certificates.parsed import Compared, Facts, KeyFacts
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.util.caches import lazy_attribute
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.request import CertificateRequest


class Verdict(NamedTuple):
    """Why something must be done: a word for programs, a sentence for people."""

    reason: str
    message: str


class Plan(NamedTuple):
    """The time of renewal, None: never because of the time. `problem` is a sentence where the maintenance
    windows could not be obeyed."""

    moment: datetime | None
    problem: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """One Certificate and its related objects.

    `requests` and `next_keys`: the CertificateRequests and next-key Secrets that the Certificate owns (by
    UID). `named_key`: the Secret named by `status.nextPrivateKeySecretName`, whatever its owner. `rivals`:
    other Certificates with the same `secretName`. `issuer`: the issuer of our group that the spec names;
    `signer`: the issuer that signed, perhaps a member of a set. `authority`: the CA that the issuer signs
    with now, then the known CAs above it; empty if unknown. `passwords`: the existing Secrets with passwords
    of key stores, by name. `is_fresh`: this pass has written the Certificate, so it cannot be stale.
    `suffix`: random letters for the name of a next-key Secret. `judged`: the verdicts of rules about this
    snapshot so far; `plans`: its plan of renewal, once computed.
    """

    certificate: Certificate
    now: datetime
    facts: Facts
    secret: Secret | None = None
    requests: tuple[CertificateRequest, ...] = ()
    next_keys: tuple[Secret, ...] = ()
    named_key: Secret | None = None
    rivals: tuple[Certificate, ...] = ()
    authority: tuple[CertificateFacts, ...] = ()
    issuer: Issuer | ClusterIssuer | None = None
    signer: Issuer | ClusterIssuer | None = None
    passwords: Mapping[str, Secret] = msgspec.field(default_factory=dict)
    is_fresh: bool = False
    suffix: str = ""
    judged: dict[Rule, Verdict | None] = msgspec.field(default_factory=dict)
    plans: list[Plan] = msgspec.field(default_factory=list)

    def with_certificate(self, certificate: Certificate) -> Snapshot:
        """The same snapshot with the Certificate as a step has changed it."""
        if certificate is self.certificate:
            return self
        return msgspec.structs.replace(self, certificate=certificate, judged={}, plans=[])

    @lazy_attribute
    def is_issuing(self) -> bool:
        """Whether an issuance is in progress (`Issuing=True`)."""
        return conditions.is_true(self.certificate.status.conditions, reasons.ISSUING)

    @property
    def next_revision(self) -> int:
        """The revision that the issuance in progress, or the next one, has; the first is 1."""
        return next_revision(self.certificate)

    def requests_of(self, revision: int) -> list[CertificateRequest]:
        """Our requests of that revision, oldest first; several only if another client has created some."""
        requests = [request for request in self.requests if revision_number(request.metadata) == revision]
        return sorted(
            requests,
            key=lambda request: (request.metadata.creation_timestamp or self.now, request.metadata.name),
        )

    @lazy_attribute
    def current_request(self) -> CertificateRequest | None:
        """The request whose certificate is in the Secret, if the request still exists."""
        revision = self.certificate.status.revision
        requests = self.requests_of(revision) if revision else []
        return requests[-1] if requests else None

    @lazy_attribute
    def key(self) -> KeyFacts | str:
        """The key in the target Secret, or why it cannot be read."""
        data = self.secret.data if self.secret else {}
        return self.facts.key(data.get(names.TLS_PRIVATE_KEY_KEY, b""))

    @lazy_attribute
    def leaf(self) -> CertificateFacts | str:
        """The certificate in the target Secret, or why it cannot be read."""
        data = self.secret.data if self.secret else {}
        return self.facts.certificate(
            data.get(names.TLS_CERT_KEY, b""), data.get(names.TLS_PRIVATE_KEY_KEY, b"")
        )

    @lazy_attribute
    def next_key(self) -> KeyFacts | None:
        """The key of the issuance in progress, if it exists and is as the spec wants it."""
        if self.named_key is None or not self.owns_key(self.named_key):
            return None
        key = self.facts.key(self.named_key.data.get(names.TLS_PRIVATE_KEY_KEY, b""))
        if not isinstance(key, KeyFacts) or desired.key_differences(key, self.certificate.spec):
            return None
        return key

    @lazy_attribute
    def next_request(self) -> CertificateRequest | None:
        """The request of the issuance in progress: of the next revision, for this key and this spec.

        The name of the key's Secret is compared as well as the key, because with rotationPolicy Never the
        failed request of an earlier attempt was made for the same key.
        """
        key = self.next_key
        if key is None:
            return None
        for request in self.requests_of(self.next_revision):
            of_key = request.metadata.annotations.get(names.PRIVATE_KEY_SECRET_NAME)
            if of_key == self.certificate.status.next_private_key_secret_name and (
                not self.differences(request) and is_for_key(request.spec.request, key.public)
            ):
                return request
        return None

    def differences(self, request: CertificateRequest) -> tuple[str, ...]:
        """The fields of the spec that the request does not match; `spec` alone if its CSR cannot be read."""
        asked, spec, compared = request.spec, self.certificate.spec, self.facts.compared
        is_ours = names.SPEC_GENERATION in request.metadata.annotations
        terms = (asked.issuer_ref, asked.duration, asked.is_ca, asked.usages, spec, is_ours)
        known = compared.get(asked.request)
        if known is not None and known[:-1] == terms:
            return known.differing
        csr = self.facts.csr(asked.request)
        if csr is None:
            return ("spec",)
        compare = desired.request_differences if is_ours else desired.others_request_differences
        differing = compare(asked, csr, spec)
        compared.put(asked.request, Compared(*terms, differing))
        return differing

    def owns_key(self, secret: Secret) -> bool:
        """Whether that Secret is a next-key Secret of this Certificate."""
        return any(secret.metadata.uid == ours.metadata.uid for ours in self.next_keys)


Rule = Callable[[Snapshot], Verdict | None]
"""Judges a snapshot; returns a verdict where it applies."""
