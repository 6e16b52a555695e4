"""Temporary certificates: like the real one, signed by nobody who stays, and marked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyAlgorithm, KeyPlan, generate, public_key_der
from certwright.pki.names import Subject
from certwright.pki.signing import is_temporary, marked, sign_temporarily

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("plan", "subject"),
    [
        (CsrPlan(dns_names=("a.example",)), "SERIALNUMBER=1234567890"),
        (
            CsrPlan(common_name="a", subject=Subject(organizations=("O",), serial_number="7")),
            "O=O,CN=a,SERIALNUMBER=1234567890",
        ),
        (CsrPlan(literal_subject="CN=a,O=O"), "CN=a,O=O,SERIALNUMBER=1234567890"),
        (CsrPlan(common_name="a", is_ca=True), "CN=a,SERIALNUMBER=1234567890"),
    ],
)
def test_a_temporary_certificate_is_marked_in_its_subject(plan: CsrPlan, subject: str) -> None:
    key = generate(KeyPlan(KeyAlgorithm.ECDSA))
    csr = build_csr(marked(plan), key)
    life = timedelta(days=90)
    made = read_certificate(sign_temporarily(csr, duration=life, is_ca=plan.is_ca, usages=(), now=NOW))
    assert is_temporary(made)
    assert sorted(made.subject_text.split(",")) == sorted(subject.split(","))
    assert made.issuer_text == "CN=cert-manager.local"
    assert (made.dns_names, made.is_ca) == (plan.dns_names, plan.is_ca)
    assert (made.not_before, made.not_after) == (NOW, NOW + life)
    assert made.public_key_der == public_key_der(key)
