"""ML-DSA keys at the issuers that cannot use them."""

from __future__ import annotations

import pytest

from certwright.acme.protocol.jws import AccountKey
from certwright.issuers.acme import ACME
from certwright.issuers.venafi.policies import KeyRules
from certwright.pki.errors import BadKey
from certwright.pki.keys import KeyPlan, encode_private_key, generate
from certwright.resources.causes import Cause
from certwright.resources.issuer import ACMEIssuer, IssuerSpec
from certwright.resources.references import SecretKeySelector
from conformance.check_issuer import Setup
from issuers.conftest import view


async def test_an_acme_issuer_refuses_an_ml_dsa_key_with_the_field() -> None:
    account = SecretKeySelector(name="account")
    spec = IssuerSpec(acme=ACMEIssuer(server="https://ca.example/dir", private_key_secret_ref=account))
    setup = Setup(ACME(), view(spec))
    outcome = await setup.failed(setup.request(key=generate(KeyPlan.of("ML-DSA"))))
    assert (outcome.reason, outcome.cause) == ("InvalidOrder", Cause.INVALID_REQUEST)
    assert (
        outcome.message == "ACME issuers do not order certificates for ML-DSA keys, which no public CA signs"
    )
    assert outcome.advice == "change spec.privateKey.algorithm to RSA or ECDSA, or use a CA issuer"


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (KeyRules(), ""),
        (KeyRules(algorithms=frozenset({"RSA", "EC"})), "spec.privateKey.algorithm"),
        (KeyRules(curves=frozenset({"P256", "ED25519"})), "spec.privateKey.algorithm"),
    ],
    ids=["no rules", "algorithms", "curves"],
)
def test_a_venafi_policy_with_rules_about_keys_forbids_ml_dsa(rules: KeyRules, field: str) -> None:
    assert rules.violation(KeyPlan.of("ML-DSA")) == field


def test_an_acme_account_cannot_have_an_ml_dsa_key() -> None:
    with pytest.raises(BadKey, match="use RSA, ECDSA or Ed25519"):
        AccountKey.from_pem(encode_private_key(generate(KeyPlan.of("ML-DSA"))))
