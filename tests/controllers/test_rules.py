"""Each rule alone: given this around a Certificate, this is the verdict; and what the trigger makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import retry_time, rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.parsed import Facts
from certwright.controllers.certificates.snapshot import Snapshot, Verdict
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.circuit_breaker import Hold
from certwright.issuers.csr_plan import csr_plan
from certwright.kube.api.core import Secret, SecretMeta
from certwright.kube.api.meta import ObjectMeta
from certwright.pki import keys
from certwright.pki.csr import build_csr
from certwright.pki.signing import self_sign
from certwright.resources.certificate import Certificate, CertificateStatus, PrivateKeySpec
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from controllers.scene import make_certificate
from support.world import START, condition_of

KEY = keys.generate(keys.KeyPlan(keys.KeyAlgorithm.ECDSA))
OTHER_KEY = keys.generate(keys.KeyPlan(keys.KeyAlgorithm.ECDSA))
SPEC = make_certificate("web", "ca").spec
CSR = build_csr(csr_plan(SPEC), KEY)
PEM = self_sign(CSR, key=KEY, duration=timedelta(days=90), is_ca=False, usages=(), now=START)
DATA = {"tls.crt": PEM, "tls.key": keys.encode_private_key(KEY)}


def certificate(name: str = "web", *, age_days: int = 0, **changes: Any) -> Certificate:
    """A Certificate at revision 1; `changes` are of the spec."""
    meta = ObjectMeta(name=name, namespace="default", creation_timestamp=START - timedelta(days=age_days))
    spec = msgspec.structs.replace(SPEC, **changes)
    return Certificate(metadata=meta, spec=spec, status=CertificateStatus(revision=1))


def secret(data: dict[str, bytes] | None = None, **notes: str) -> Secret:
    """The target Secret; `notes` are annotations below cert-manager.io."""
    annotations = {f"cert-manager.io/{name.replace('_', '-')}": value for name, value in notes.items()}
    meta = SecretMeta(name="web", namespace="default", annotations=annotations)
    return Secret(metadata=meta, data=DATA if data is None else data)


def request(revision: int = 1, csr: bytes = CSR) -> CertificateRequest:
    """A request of that revision."""
    annotations = {"cert-manager.io/certificate-revision": str(revision)}
    meta = ObjectMeta(name=f"web-{revision}", namespace="default", annotations=annotations)
    spec = CertificateRequestSpec(issuer_ref=SPEC.issuer_ref, request=csr)
    return CertificateRequest(metadata=meta, spec=spec)


def snapshot(**fields: Any) -> Snapshot:
    """A Certificate that is well, but for `fields`."""
    well: dict[str, Any] = {"certificate": certificate(), "now": START, "facts": Facts(), "secret": secret()}
    return Snapshot(**{**well, **fields})


CASES: dict[str, tuple[dict[str, Any], Verdict | None]] = {
    "all is well": ({}, None),
    "all is well with its request": ({"requests": (request(),)}, None),
    "no Secret": (
        {"secret": None},
        Verdict("DoesNotExist", "Issuing certificate as Secret does not exist"),
    ),
    "an empty Secret": (
        {"secret": secret({})},
        Verdict("MissingData", "Issuing certificate as Secret does not contain any data"),
    ),
    "no key": (
        {"secret": secret({"tls.crt": PEM})},
        Verdict("MissingData", "Issuing certificate as Secret does not contain a private key"),
    ),
    "no certificate": (
        {"secret": secret({"tls.key": DATA["tls.key"]})},
        Verdict("MissingData", "Issuing certificate as Secret does not contain a certificate"),
    ),
    "another pair": (
        {"secret": secret({**DATA, "tls.key": keys.encode_private_key(OTHER_KEY)})},
        Verdict(
            "InvalidKeyPair",
            "Issuing certificate as Secret contains a private key that does not match the certificate",
        ),
    ),
    "another issuer": (
        {"secret": secret(issuer_name="old", issuer_kind="ClusterIssuer")},
        Verdict(
            "IncorrectIssuer",
            'Issuing certificate as Secret was previously issued by "ClusterIssuer.cert-manager.io/old"',
        ),
    ),
    "the same issuer, its defaults left out": ({"secret": secret(issuer_name="ca")}, None),
    "another group of issuers": (
        {"secret": secret(issuer_name="ca", issuer_kind="Issuer", issuer_group="example.com")},
        Verdict(
            "IncorrectIssuer",
            'Issuing certificate as Secret was previously issued by "Issuer.example.com/ca"',
        ),
    ),
    "an issuer without a name": (
        {"secret": secret(issuer_kind="Issuer")},
        Verdict(
            "IncorrectIssuer",
            'Issuing certificate as Secret was previously issued by "Issuer.cert-manager.io/"',
        ),
    ),
    "another Certificate": (
        {"secret": secret(certificate_name="old")},
        Verdict(
            "IncorrectCertificate",
            'Secret was issued for "old". If this message is not transient, you might have two conflicting '
            "Certificates pointing to the same secret.",
        ),
    ),
    "another kind of key": (
        {"certificate": certificate(private_key=PrivateKeySpec(algorithm="ECDSA", size=384))},
        Verdict("SecretMismatch", "Existing private key is not up to date for spec: [spec.privateKey.size]"),
    ),
    "another algorithm": (
        {"certificate": certificate(private_key=PrivateKeySpec(algorithm="Ed25519"))},
        Verdict(
            "SecretMismatch", "Existing private key is not up to date for spec: [spec.privateKey.algorithm]"
        ),
    ),
    "RSA where nothing is said": (
        {"certificate": certificate(private_key=None)},
        Verdict(
            "SecretMismatch", "Existing private key is not up to date for spec: [spec.privateKey.algorithm]"
        ),
    ),
    "a request that cannot be read": (
        {"requests": (request(csr=b"rubbish"),)},
        Verdict(
            "InvalidCertificateRequest",
            "Failed to decode current CertificateRequest: its spec.request is not a signing request",
        ),
    ),
    "the request of another revision does not count": ({"requests": (request(2, csr=b"rubbish"),)}, None),
    "a key that somebody has changed": (
        {"requests": (request(csr=build_csr(csr_plan(SPEC), OTHER_KEY)),)},
        Verdict(
            "SecretMismatch",
            "Secret contains a private key that does not match the current CertificateRequest",
        ),
    ),
    "another issuer in the spec, and another name": (
        {
            "certificate": certificate(dns_names=("x",), issuer_ref=IssuerReference(name="new")),
            "requests": (request(),),
        },
        Verdict(
            "RequestChanged",
            "Fields on existing CertificateRequest resource not up to date: [spec.dnsNames spec.issuerRef]",
        ),
    ),
    "usages and an address in the spec": (
        {
            "certificate": certificate(usages=("client auth",), ip_addresses=("10.0.0.1",)),
            "requests": (request(),),
        },
        Verdict(
            "RequestChanged",
            "Fields on existing CertificateRequest resource not up to date: [spec.ipAddresses spec.usages]",
        ),
    ),
    "other usages, and the request is gone: issuers change them": (
        {"certificate": certificate(usages=("client auth",), duration="1h")},
        None,
    ),
    "addresses in the spec, and the request is gone": (
        {
            "certificate": certificate(
                ip_addresses=("10.0.0.1",), uris=("spiffe://a",), email_addresses=("a@b.c",)
            )
        },
        Verdict(
            "SecretMismatch",
            "Issuing certificate as Existing issued Secret is not up to date for spec: "
            "[spec.ipAddresses spec.uris spec.emailAddresses]",
        ),
    ),
    "the first of several faults counts": (
        {"secret": secret({"tls.crt": PEM}, issuer_name="old", certificate_name="old")},
        Verdict("MissingData", "Issuing certificate as Secret does not contain a private key"),
    ),
    "another name in the spec, and the request is gone": (
        {"certificate": certificate(dns_names=("x",))},
        Verdict(
            "SecretMismatch",
            "Issuing certificate as Existing issued Secret is not up to date for spec: [spec.dnsNames]",
        ),
    ),
}


@pytest.mark.parametrize(("fields", "verdict"), CASES.values(), ids=CASES.keys())
def test_what_makes_a_certificate_unready_makes_it_be_issued(
    fields: dict[str, Any], verdict: Verdict | None
) -> None:
    assert rules.first(rules.READINESS_RULES, snapshot(**fields)) == verdict
    assert rules.first(rules.TRIGGER_RULES, snapshot(**fields)) == verdict


@pytest.mark.parametrize("key", ["tls.key", "tls.crt"])
def test_what_cannot_be_read_is_told_without_showing_it(key: str) -> None:
    verdict = rules.first(rules.TRIGGER_RULES, snapshot(secret=secret({**DATA, key: b"top secret"})))
    assert verdict is not None
    assert verdict.reason == {"tls.key": "InvalidKeyPair", "tls.crt": "InvalidCertificate"}[key]
    assert "top secret" not in verdict.message


def test_being_due_for_renewal_does_not_make_unready() -> None:
    status = CertificateStatus(revision=1, renewal_time=START + timedelta(days=60))
    planned = msgspec.structs.replace(certificate(), status=status)
    due = snapshot(certificate=planned, now=START + timedelta(days=60))
    assert rules.first(rules.READINESS_RULES, due) is None
    assert rules.first(rules.TRIGGER_RULES, due) == Verdict(
        "Renewing", "Renewing certificate as renewal was scheduled at 2026-03-02 00:00:00 +0000 UTC"
    )
    not_yet = snapshot(certificate=planned, now=START + timedelta(days=60, seconds=-1))
    assert rules.first(rules.TRIGGER_RULES, not_yet) is None


def test_a_secret_that_belongs_to_another_makes_unready_but_issues_nothing() -> None:
    older = certificate("old", age_days=1)
    rival = snapshot(secret=None, rivals=(older,))
    assert rules.first(rules.READINESS_RULES, rival) == Verdict(
        "IncorrectCertificate",
        'Secret "web" is already used by Certificate "old"; give this Certificate another spec.secretName',
    )
    assert rules.secret_belongs_to_another(rival) is not None


def test_having_expired_makes_unready() -> None:
    gone = snapshot(now=START + timedelta(days=90, seconds=1))
    assert rules.first(rules.READINESS_RULES, gone) == Verdict(
        "Expired", "Certificate expired on Wed, 01 Apr 2026 00:00:00 UTC"
    )
    assert rules.first(rules.READINESS_RULES, snapshot(now=START + timedelta(days=90))) is None


@pytest.mark.parametrize(
    ("target", "owner"),
    [
        (None, "old"),
        (secret(certificate_name="web"), "web"),
        (secret(certificate_name="old"), "old"),
        (secret(certificate_name="gone"), "old"),
    ],
    ids=["the oldest", "whom it was written for", "whom it was written for (2)", "who is still there"],
)
def test_a_secret_belongs_to(target: Secret | None, owner: str) -> None:
    around = snapshot(secret=target, rivals=(certificate("old", age_days=1), certificate("young")))
    assert rules.owner_of_secret_name(around).metadata.name == owner


FAILED = START + timedelta(days=1)


@pytest.mark.parametrize(
    ("attempts", "hours"), [(None, 1), (-3, 1), (1, 1), (2, 2), (6, 32), (7, 32), (10**9, 32)]
)
def test_the_wait_after_failures(attempts: int | None, hours: int) -> None:
    status = CertificateStatus(last_failure_time=FAILED, failed_issuance_attempts=attempts)
    failed = msgspec.structs.replace(certificate(), status=status)
    waiting = snapshot(certificate=failed, requests=(request(1),))
    assert retry_time.retry_at(waiting, BackoffLimits()) == FAILED + timedelta(hours=hours)


def test_a_changed_spec_lifts_the_wait_and_a_minimum_of_zero_too() -> None:
    status = CertificateStatus(last_failure_time=FAILED, failed_issuance_attempts=3)
    failed = msgspec.structs.replace(certificate(dns_names=("new",)), status=status)
    assert retry_time.retry_at(snapshot(certificate=failed, requests=(request(1),)), BackoffLimits()) is None
    off = BackoffLimits(minimum=timedelta(0), maximum=timedelta(0))
    same = msgspec.structs.replace(certificate(), status=status)
    assert retry_time.retry_at(snapshot(certificate=same), off) == FAILED


HOUR = timedelta(hours=1)


@dataclass
class Closed:
    """Lets nobody through before that moment."""

    until: datetime
    sentence: str = "it is out"

    def __call__(self, certificate: Certificate, now: datetime) -> Hold | None:
        del certificate
        return Hold(self.until, self.sentence, is_exact=True) if now < self.until else None


def decide(gate: Closed, current: Certificate, *, now: datetime = START, broken: bool = True) -> Certificate:
    """The Certificate after the step; with `broken` it has no Secret."""
    around = snapshot(certificate=current, now=now, **({"secret": None} if broken else {}))
    draft = Draft(current)
    Trigger(BackoffLimits(), gate).decide(around, draft)
    return draft.certificate


def test_a_held_certificate_says_why_and_until_when() -> None:
    condition = condition_of(decide(Closed(START + HOUR), certificate()), "Issuing")
    assert (condition.status, condition.reason) == ("False", "WaitingForIssuer")
    assert condition.message == "Waiting for the issuer. Next attempt at 2026-01-01T01:00:00Z; it is out"


def test_a_moment_that_moves_away_is_not_written_each_time() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    gate.until += HOUR
    assert decide(gate, triggered) is triggered
    # Nearer, other words, or past: that is worth a write.
    for change in (Closed(START + HOUR / 2), Closed(START + HOUR, "it is overloaded")):
        assert decide(change, triggered) is not triggered
    assert decide(gate, triggered, now=START + HOUR) is not triggered


def test_once_let_through_it_is_issued() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    condition = condition_of(decide(gate, triggered, now=START + HOUR), "Issuing")
    assert (condition.status, condition.reason) == ("True", "DoesNotExist")


def test_what_need_not_be_issued_any_more_waits_for_nothing() -> None:
    gate = Closed(START + HOUR)
    triggered = decide(gate, certificate())
    assert decide(gate, triggered, broken=False).status.conditions == ()
