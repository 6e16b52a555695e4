"""Which of cert-manager's end-to-end tests are run, and what is left out of them, with its reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that are run by one process; `focus` is a regular expression for their full names."""

    name: str
    focus: str

    def holds(self, case: str) -> bool:
        """Whether a case of that name belongs to it."""
        return re.search(self.focus, case) is not None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Cases that are not run; `pattern` is a regular expression for their full names."""

    pattern: str
    reason: str


_CONFORMANCE = r"\[Conformance\] Certificates with issuer type "

SUITES = (
    Suite("selfsigned", _CONFORMANCE + r"SelfSigned"),
    Suite("ca", _CONFORMANCE + r"CA "),
    Suite("acme-http01", _CONFORMANCE + r"ACME HTTP01 \w+ \((Ingress|Gateway)\)"),
    Suite("acme-dns01", _CONFORMANCE + r"ACME DNS01"),
    Suite(
        "csr",
        r"CertificateSigningRequest with issuer type (SelfSigned|CA) |CertificateSigningRequests SelfSigned",
    ),
    Suite("rbac", r"\[Conformance\] \[RBAC\]"),
    Suite(
        "secrets",
        r"\[cert-manager\] (Certificate (SecretTemplate|AdditionalCertificateOutputFormats)|literalsubject)",
    ),
    Suite("requests", r"\[cert-manager\] (Approval|UserInfo|CertificateRequests SelfSigned)"),
    Suite("issuer-selfsigned", r"\[cert-manager\] Self ?Signed"),
    Suite("issuer-ca", r"\[cert-manager\] CA (Issuer|ClusterIssuer|Certificate|CertificateRequest)\b"),
    Suite("issuer-acme", r"\[cert-manager\] ACME (Issuer|Certificate|CertificateRequest)\b"),
)

NOT_THERE = (
    LeftOut("challenge pod", "certwright makes no solver pods: its replicas answer behind a Service"),
    LeftOut("when redirected", "needs an ingress controller that redirects"),
)
"""What these cases try does not exist, so that they are never run."""

DEVIATIONS = (
    LeftOut(
        "should issue another certificate with the same private key",
        "privateKey.rotationPolicy is Always unless set, as since cert-manager 1.18; the suite expects Never",
    ),
    LeftOut(
        r"CA Certificate when the CA is (an issuer|a second level issuer)",
        "the suite's CA certificates expired in 2023, and an Issuer with an expired CA is not ready",
    ),
    LeftOut("ACME .*an Ed25519", "Pebble refuses signing requests with Ed25519 keys"),
    LeftOut(
        "ACME account with External Account Binding", "Pebble refuses the suite's MAC key, which has 12 bytes"
    ),
    LeftOut(
        "updating an existing failing certificate that had a blocked dns name",
        "an Order's reason is the CA's own sentence; the suite looks for the HTTP status and the error's URN",
    ),
    LeftOut(
        r"ACME CertificateRequest \((HTTP01\) should obtain|DNS01\))",
        "the suite wants the common name of its request in the certificate, where Pebble puts none",
    ),
    LeftOut(
        r"ACME HTTP01 .*an ingress with certificate field annotations",
        "the suite wants the common name of its request in the certificate, where Pebble puts none",
    ),
    LeftOut(
        "CertificateSigningRequest with issuer type CA ",
        "the suite's CA certificate ends after a minute, and no certificate of ours outlives its CA",
    ),
    LeftOut(
        "CertificateSigningRequests SelfSigned Secret",
        "the suite's CSR asks for other usages than its object, which is refused, as since cert-manager 1.13",
    ),
)
"""Cases that fail, each for a reason that stays. Many wait for minutes until they do."""


def reason_of(case: str, among: Sequence[LeftOut]) -> str | None:
    """Why a case is left out; `None` if it is not among these."""
    return next((left.reason for left in among if re.search(left.pattern, case)), None)
